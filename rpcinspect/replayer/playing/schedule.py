"""When each message of a session may be sent: as soon as causality allows, or at the captured pace.

In: what is to be sent, each with the number of arrivals that must have come before, and what arrives. Out:
what may be sent now. Pure: the clock is the caller's.

Every played worker sends in its captured order. It sends nothing before everything has arrived, at any
played worker, that had in the capture; what had arrived there was caused by something sent earlier, so no
two wait for each other. Gradients are an exception, see `late_answers`: they do not wait for answers that may
come after them, and that one has come is said at once. Calls of different workers that overlapped have an
order only by their answers: the later one waits for the earlier one's answer; but if nothing happens for a
while, that may be waiting for the later one, which is sent then.

Mirrors `DistEngine::executeSendFunctionAsync` of torch/csrc/distributed/autograd/engine/dist_engine.cpp, and
`processRRefBackward` of torch/csrc/distributed/rpc/request_callback_no_python.cpp.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from rpcinspect.replayer.planning.model import Ending, PlannedSession, Step
from rpcinspect.rpc.command import (
    PropagateGradientsReq,
    PropagateGradientsResp,
    RRefBackwardReq,
)
from rpcinspect.rpc.questions import created
from rpcinspect.run.exchanges import Exchange

SHORTEST_HOLD_S, LONGEST_HOLD_S = 0.1, 2.0
"""How long nothing must have happened before a call no longer waits for the answer to one that it
overlapped."""
STUBBORN_HOLD_S = 0.03
"""The same, where such a wait was in vain before for calls of the same function."""


class DueMessage(Struct, eq=False):
    """A message of a played worker: a request, or the answer to a live worker's request."""

    message: int
    """Index of the captured message."""
    after: int
    """Arrivals that must have come."""
    time_ns: int
    """When it was sent in the capture."""
    step: Step
    place: tuple[bool, int]
    """Among those of other workers that may be sent at the same time: answers first, by time, then requests
    in the order of the plan."""
    hold_s: float = 0.0
    context: int | None = None
    """Of a gradient that may be sent before answers of its context have come."""
    behind: set[int] = field(default_factory=set)
    """Overlapping requests that come first, of which the answer has not come."""


class Schedule:
    """The queues of one session."""

    def __init__(
        self,
        planned: PlannedSession,
        calls: Mapping[int, Exchange],
        *,
        speed: float | None = None,
        stubborn: set[str | None] | None = None,
    ) -> None:
        """`calls` by the index of their request; `speed`: 1.0 for the captured pace, None for no pace;
        `stubborn`: functions whose answers were waited for in vain before a call that they overlapped, to
        which those of this session are added.
        """
        self._calls = calls
        self._stubborn = set() if stubborn is None else stubborn
        self._arrivals = planned.arrivals
        self._place = {index: place for place, index in enumerate(planned.arrivals)}
        self._come = [False] * len(planned.arrivals)
        late = late_answers(calls)
        requests = {step.answer: step.message for step in planned.steps if step.action == "send"}
        arrivals = [(requests.get(index, index), index) for index in planned.arrivals]
        self._late = [late.get(request) if request != at else None for request, at in arrivals]
        """Of each arrival, the context for which gradients do not wait for it."""
        self._prefix = 0
        self._reached: dict[int, int] = defaultdict(int)
        """Context → how many arrivals have come, but for those that its gradients do not wait for."""
        self._queues: dict[str, deque[DueMessage]] = defaultdict(deque)
        """Played worker → its requests, in order."""
        self._answers: dict[int, DueMessage] = {}
        """By the index of the request, which has not come."""
        self._asked: list[tuple[int, int, int, DueMessage]] = []
        """Answers to what was asked, a heap by what they wait for and the captured time: what holds up the
        first holds up all."""
        self._unasked: set[int] = set()
        """Requests of live workers that have not come and are not given up."""
        self._speed = speed
        self._began: float | None = None
        self._followers: dict[int, list[DueMessage]] = defaultdict(list)
        self._build(planned, [_arrival_time(calls[request], at) for request, at in arrivals])

    def _build(self, planned: PlannedSession, times: Sequence[int]) -> None:
        """Queues all messages; `times`: when each arrival had come in the capture."""
        sends: dict[int, DueMessage] = {}
        for number, step in enumerate(planned.steps):
            if step.action == "skip":
                continue
            call = self._calls[step.message]
            if step.action == "send":
                due = DueMessage(step.message, step.after, call.begin_ns, step, (True, number))
                due.context = gradient_context(call)
                sends[step.message] = due
                self._queues[step.role].append(due)
            else:
                self._unasked.add(step.message)
                if call.answered_ns is not None and step.answer is not None:
                    when = call.answered_ns
                    after = 0 if takes_gradient(call) else bisect_left(times, when)
                    self._answers[step.message] = DueMessage(step.answer, after, when, step, (False, when))
        self._first_ns = min((one.time_ns for one in sends.values()), default=0)
        self._begin_passes(sends)
        self._hold(planned, sends)

    def _begin_passes(self, sends: Mapping[int, DueMessage]) -> None:
        """A gradient that was sent when all gradients before it in its context were answered waits for their
        answers: it begins another pass, which a live worker must not take for the same one."""
        answered: dict[int, list[int]] = defaultdict(list)
        """Context → arrivals that are answers to its gradients."""
        for due in sends.values():
            if due.context is not None and due.step.answer in self._place:
                answered[due.context].append(self._place[due.step.answer])
        for places in answered.values():
            places.sort()
        begun: Counter[int] = Counter()
        for due in sorted(sends.values(), key=lambda due: due.time_ns):
            if due.context is not None:
                context, before = due.context, begun[due.context]
                if before and before == bisect_left(answered[context], due.after):
                    due.context = None
                begun[context] += 1

    def _hold(self, planned: PlannedSession, sends: Mapping[int, DueMessage]) -> None:
        """Finds out which overlapping call waits for which."""
        for overlap in planned.overlaps:
            for other in overlap.others:
                pair = (sends[overlap.message], sends[other])
                first, second = sorted(pair, key=lambda due: due.place)
                call = self._calls[first.message]
                took = 0.0 if call.end_ns is None else (call.end_ns - call.begin_ns) / 1e9
                second.behind.add(first.message)
                second.hold_s = max(second.hold_s, min(max(2 * took, SHORTEST_HOLD_S), LONGEST_HOLD_S))
                self._followers[first.message].append(second)

    # --- what happens ---------------------------------------------------------------------------------------

    def arrived(self, index: int) -> None:
        """A message of a live worker is there: the answer or the request with this captured index; or nobody
        waits for it any more."""
        place = self._place.get(index)
        if place is not None:
            self._come[place] = True
            while self._prefix < len(self._come) and self._come[self._prefix]:
                self._prefix += 1
        self._unasked.discard(index)

    def answered(self, request: int) -> None:
        """A request that was sent has its answer, or gets none."""
        for follower in self._followers.pop(request, ()):
            follower.behind.discard(request)

    def asked(self, request: int) -> None:
        """A live worker has sent a planned request: its answer becomes due."""
        self.arrived(request)
        due = self._answers.pop(request, None)
        if due is not None:  # answers are given beside what the worker sends, each in its own time
            heapq.heappush(self._asked, (due.after, due.time_ns, due.message, due))

    # --- what may be done -----------------------------------------------------------------------------------

    def ready(self, now: float, quiet_s: float = 0.0, *, answers_only: bool = False) -> Iterator[DueMessage]:
        """Yields the messages that may be sent at this moment, in order; they count as sent.
        `answers_only`: no requests.

        `quiet_s`: for how long nothing has happened. Of what only waits for an overlapping call, one at most
        is given out then, and none if there is something else.
        """
        if self._began is None:
            self._began = now
        while True:
            free = [due for due in self._heads() if self._free(due, now)]
            if answers_only:
                free = [due for due in free if due.step.action == "answer"]
            settled = [due for due in free if not due.behind]
            if not settled:
                settled = [due for due in free if quiet_s >= self._hold_s(due)]
                self._stubborn.update(self._calls[index].function for due in settled for index in due.behind)
            if not settled:
                return
            quiet_s = 0.0
            due = min(settled, key=lambda due: due.place)
            self._pop(due)
            yield due

    def _hold_s(self, due: DueMessage) -> float:
        """Returns the seconds without events after which a message stops waiting for overlapping ones."""
        stubborn = all(self._calls[index].function in self._stubborn for index in due.behind)
        return min(due.hold_s, STUBBORN_HOLD_S) if stubborn else due.hold_s

    def _heads(self) -> list[DueMessage]:
        """The next message of each worker's requests, and of the answers."""
        return [queue[0] for queue in self._queues.values()] + [one[-1] for one in self._asked[:1]]

    def _pop(self, due: DueMessage) -> None:
        if due.step.action == "answer":
            heapq.heappop(self._asked)
            return
        queue = self._queues[due.step.role]
        queue.popleft()
        if not queue:
            del self._queues[due.step.role]

    def _free(self, due: DueMessage, now: float) -> bool:
        """Whether nothing but an overlapping call holds it up."""
        return self._caused(due) and (self._speed is None or now >= self._when(due))

    def _caused(self, due: DueMessage) -> bool:
        """Whether everything has come that must have."""
        if due.context is None or due.after <= self._prefix:
            return due.after <= self._prefix
        place = max(self._reached[due.context], self._prefix)
        while place < due.after and (self._come[place] or self._late[place] == due.context):
            place += 1
        self._reached[due.context] = place
        return due.after <= place

    def _when(self, due: DueMessage) -> float:
        assert self._began is not None
        assert self._speed is not None
        return self._began + (due.time_ns - self._first_ns) / 1e9 / self._speed

    def wake_in(self, now: float, quiet_s: float) -> float | None:
        """Returns the seconds until something may be sent if nothing happens; None if nothing can."""
        found: list[float] = []
        for due in self._heads():
            if self._caused(due):
                pace = 0.0 if self._speed is None else self._when(due) - now
                found.append(max(pace, self._hold_s(due) - quiet_s if due.behind else 0.0, 0.0))
        return min(found, default=None)

    def reached(self, ending: Ending) -> bool:
        """Returns whether all has come and was sent that had before the end of a worker's process."""
        its = [due for due in self._heads() if due.step.role == ending.worker]
        its += [self._answers[index] for index in self._unasked if index in self._answers]
        its = [due for due in its if due.step.role == ending.worker and due.time_ns < ending.time_ns]
        return not its and self._prefix >= ending.after

    @property
    def empty(self) -> bool:
        """Whether everything was sent, and nothing that live workers were to ask is open."""
        return not self._queues and not self._asked and not self._unasked

    @property
    def unasked(self) -> frozenset[int]:
        """Returns the requests that live workers have not sent, and that were not given up."""
        return frozenset(self._unasked)

    def awaited(self) -> Sequence[int]:
        """Captured indexes of the arrivals that hold up the next messages, earliest first."""
        waiting = [*self._heads(), *(one[-1] for one in self._asked)]
        most = max((due.after for due in waiting), default=0)
        return [self._arrivals[p] for p in range(self._prefix, most) if not self._come[p]]


def _arrival_time(call: Exchange, index: int) -> int:
    """When the request of a call, or its answer, had come in the capture."""
    return call.arrived_ns if call.index == index or call.end_ns is None else call.end_ns


def late_answers(calls: Mapping[int, Exchange]) -> Mapping[int, int]:
    """Index of a request → the context of the backward pass at whose end its answer may come, though it came
    before in the capture. A played worker that waited for it before it sends its own gradients of that
    context would wait for ever, since the pass waits for those. Two cases were seen.

    - of the gradients that a worker is sent together, it answers the one that it takes up first when its
      whole part of the pass is done, the others at once. Which one that is, its threads decide.
    - `RRef.backward` may begin in the thread that has just made the remote object. That thread answers the
      request for the object when the pass is done.
    """
    passes: dict[tuple[int, int], int] = {}
    """RRef → the context in which a backward pass begins at it."""
    for call in calls.values():
        command = call.request.rpc.command
        if isinstance(command, RRefBackwardReq):
            passes[command.rref_id.to_value()] = command.autograd_context_id
    found: dict[int, int] = {}
    for index, call in calls.items():
        made = created(call.request)
        context = gradient_context(call) if made is None else passes.get(made[0])
        if context is not None:
            found[index] = context
    return found


def gradient_context(call: Exchange) -> int | None:
    """The context of a gradient; None: the request is none."""
    return call.context if isinstance(call.request.rpc.command, PropagateGradientsReq) else None


def takes_gradient(call: Exchange) -> bool:
    """Whether a request is a gradient that is taken; such an answer waits for nothing."""
    return call.response is not None and isinstance(call.response.rpc.command, PropagateGradientsResp)
