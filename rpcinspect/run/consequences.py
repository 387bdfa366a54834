"""What follows from messages, not from open requests: gradients, cleanup and housekeeping of RRefs.

In: the requests of a session and what explains those that code sends. Out: what explains the rest.

A worker's part of a backward pass is run by torch/csrc/distributed/autograd/engine/dist_engine.cpp: what it
sends follows from gradients that came before in the same context, unless it began the pass itself. Which of
several gradients it was is told by the graph: what a request brought gets its gradient from those that came
for the answer, or for what was sent while serving it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import CALLS, GENERAL, HOUSEKEEPING, PASSES
from rpcinspect.run.possible_causes import CauseColumn, PossibleCauses
from rpcinspect.run.requests import MAX_OPEN, Requests, Serving, Traffic
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.model import NONE
from rpcinspect.session.provenance import Id, What
from rpcinspect.session.uncaptured import NEVER

CLEANUP = MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ
BACKWARD = MessageType.BACKWARD_AUTOGRAD_REQ


def follow(requests: Requests, found: CauseColumn) -> None:
    """Adds what explains gradients, cleanups and housekeeping to what was found."""
    forward = array("q", [NONE]) * len(requests.begin)
    order = requests.session.order
    for context in requests.session.contexts:
        for edge in context.edges:
            for index in edge.backward:
                forward[order[index]] = order[edge.forward]
    for member, worker in sorted(requests.workers.items()):
        follower = _Follower(requests, found, member, worker, forward)
        follower.gradients()
        follower.cleanups()
        follower.forks()


class _Follower:
    """What explains the requests of one worker."""

    def __init__(
        self,
        requests: Requests,
        found: CauseColumn,
        member: WorkerKey,
        worker: Traffic,
        forward: Sequence[int],
    ) -> None:
        self.requests = requests
        self.found = found
        self.job, self.name = member
        self.worker = worker
        unseen = requests.unseen_until(member) == NEVER or requests.unseen_since(member) < NEVER
        self.own = PossibleCauses((), True, True, unseen)
        self.forward = forward
        """Of each row of a gradient that of the forward message along whose edge it goes back, or -1."""

    def gradients(self) -> None:
        """Gradients that the worker sends."""
        requests = self.requests
        sent: dict[int, list[int]] = defaultdict(list)
        for row in requests.of_types((BACKWARD,), self.worker.sent):
            context = requests.context(row)
            if context is not None:
                sent[context].append(row)
        if not sent:
            return
        arrived: dict[int, list[int]] = defaultdict(list)
        for row in requests.of_types(PASSES, self.worker.received):
            context = requests.context(row)
            if context in sent:
                arrived[context].append(row)
        serving = Serving(requests, self.worker.received)
        begin, end = requests.begin, requests.arrived
        for context, rows in sorted(sent.items(), key=lambda item: begin[item[1][0]]):
            came = arrived.get(context, [])
            if len(came) == 1 and end[came[0]] <= begin[rows[0]]:  # as nearly always
                for row in rows:
                    self.found.parent[row] = came[0]
                continue
            serving.at(begin[rows[0]])
            came.sort(key=end.__getitem__)
            times = [end[row] for row in came]
            beginner = None if bisect_right(times, begin[rows[0]]) else self._holder(context, serving)
            for row in rows:
                before = came[: bisect_right(times, begin[row])]
                self.found[row] = self._gradient(row, before, beginner)

    def _gradient(self, row: int, before: Sequence[int], beginner: PossibleCauses | None) -> PossibleCauses:
        """Finds the cause of a gradient: those before it, or whoever began the pass on this worker."""
        if not before:
            return beginner or self.own
        if beginner is None and len(before) == 1:
            return PossibleCauses((before[0],))
        known = self._fed(row, before)
        if known is not None and (beginner is None or known):
            return PossibleCauses(tuple(known or before[-MAX_OPEN:]))
        rows = tuple(reversed(before[-MAX_OPEN:]))
        if beginner is None:
            return PossibleCauses(rows)
        passed_on = tuple(one for one in rows if self._passed_on(row, one))
        if passed_on:
            return PossibleCauses(passed_on)
        return PossibleCauses((*beginner.rows, *rows), beginner.own, beginner.own or bool(beginner.rows))

    def _fed(self, row: int, before: Sequence[int]) -> list[int] | None:
        """Of the gradients that came, those for what left the worker on behalf of the request that had what a
        gradient goes back to; None where that is not known of one of them.
        """
        forward = self.forward[row]
        holder = None if forward == NONE else self._holder_of(forward)
        if holder is None:
            return None
        found = []
        for one in before:
            sent = self.forward[one]
            its = None if sent == NONE else self._holder_of(sent)
            if its is None:
                return None
            if its == holder:
                found.append(one)
        return found

    def _passed_on(self, row: int, before: int) -> bool:
        """Whether what a gradient goes back to was sent on as it is, in the message that another came for:
        then it waits for that one.
        """
        one, other = self.forward[row], self.forward[before]
        return one != NONE != other and bool(self._tensors[one] & self._tensors[other])

    @cached_property
    def _tensors(self) -> dict[int, frozenset[int]]:
        """Marks of the tensors of forward messages."""
        return self.requests.provenance.tensors({*self.forward} - {NONE})

    def _holder_of(self, row: int) -> int | None:
        """Returns the request that this worker served when it got or sent a forward message; None where
        several are possible, or its own program was running."""
        requests = self.requests
        request = row if requests.session.messages.from_client[row] else requests.answer(row)
        if request is None:
            return None
        if requests.session.source(request) == self.name:
            parent = self.found.parent[request]
            return parent if parent >= 0 else None
        for event in requests.events.get(request, ()):
            if event.what == What.FETCHED:  # the value is the result of the call that made the RRef
                return self._made.get(event.rref)
        return request

    @cached_property
    def _made(self) -> dict[Id, int]:
        """RRef of this worker → the remote call that made it."""
        events = (event for row in self.worker.received for event in self.requests.events.get(row, ()))
        return {event.rref: event.row for event in events if event.what == What.MADE}

    def _holder(self, context: int, serving: Serving) -> PossibleCauses:
        """Whose code began a pass: that which sent the calls of the context."""
        for row in self._general.get(context, ()):
            known = self.found.of(row, self.own)
            if not known.rows or any(one in serving for one in known.rows):
                return known
        first = serving.first_in(context)
        return self.own if first is None else PossibleCauses((first,))

    @cached_property
    def _general(self) -> dict[int, list[int]]:
        """Context → what code of this worker sent in it."""
        found: dict[int, list[int]] = {}
        for row in self.requests.of_types(GENERAL, self.worker.sent):
            context = self.requests.context(row)
            if context is not None:
                found.setdefault(context, []).append(row)
        return found

    def cleanups(self) -> None:
        """A context's cleanup follows from one that came, except at the worker that opened the context."""
        requests = self.requests
        arrived: dict[int, int] = {}
        for row in requests.of_types((CLEANUP,), self.worker.received):
            context = requests.context(row)
            if context is not None:
                arrived.setdefault(context, row)
        for row in requests.of_types((CLEANUP,), self.worker.sent):
            context = requests.context(row)
            if context is None:
                continue
            first = self._general.get(context)
            if requests.creators.get((self.job, context)) != self.name and context in arrived:
                self.found.parent[row] = arrived[context]
            elif requests.creators.get((self.job, context)) == self.name and first:
                self.found[row] = self.found.of(first[0], self.own)
            else:
                self.found[row] = self.own

    def forks(self) -> None:
        """A fork's housekeeping has the cause of the message that brought or made the fork."""
        requests, events = self.requests, self.requests.events
        housekeeping = requests.of_types(HOUSEKEEPING, self.worker.sent)
        if not housekeeping:
            return
        served: dict[Id, int] = {}
        called: dict[Id, int] = {}
        for row in self.worker.received:
            for event in requests.brought(row):
                served.setdefault(event.fork, row)
        for row in self.worker.sent:
            for event in events.get(row, ()):
                if event.what == What.MADE:
                    called.setdefault(event.fork, row)
            answer = requests.answer(row)
            for event in requests.brought(answer) if answer is not None else ():
                called.setdefault(event.fork, row)
        calls = requests.of_types(CALLS, self.worker.received)
        calls.sort(key=requests.arrived.__getitem__)
        times = [requests.arrived[row] for row in calls]
        for row in housekeeping:
            fork = next((event.fork for event in events.get(row, ())), None)
            if fork in served:
                self.found[row] = PossibleCauses((served[fork],))
            elif fork in called:
                self.found[row] = self.found.of(called[fork], self.own)
            else:  # it came in a form that nobody knows as an RRef's, or before the capture
                before = calls[: bisect_right(times, requests.begin[row])][-MAX_OPEN:]
                self.found[row] = PossibleCauses(tuple(reversed(before)), True, not before)
