"""`nonfinite-tensor`: the first message in cause that carries NaN or infinities, and who made them from what.

A message is first if its sender had received none before it. NaN counts everywhere; infinities count in
gradients and results only, since masks among the arguments of calls are made of them. The first bytes of
each tensor are looked at while messages come (`nonfinite_search`). If something was found, the rest of longer
ones is read as long as their sender or receiver has no such numbers yet: they may be where they came from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from rpcinspect.checks.check import MAX_INDEXES, Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.nonfinite_search import FIRST_BYTES, LongerTensor, NonfiniteCount, NonfiniteSearch
from rpcinspect.rpc.message import is_request
from rpcinspect.rpc.questions import FETCHES
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.hosts import clocks, host_of, unseen_hosts
from rpcinspect.session.model import NONE, AutogradContext, Edge, Finding
from rpcinspect.session.provenance import MessageKind
from rpcinspect.session.words import counted, numbers, several, unique
from rpcinspect.tcp.ranges import CaptureBytes

MAX_AGAIN = 1 << 30
"""Bytes that are read of longer tensors afterwards, at most."""
MAX_OTHERS = 3
UNSEEN = "were not looked at"


class _Made(Struct, frozen=True):
    """A message that carries such numbers, and whose sender had received none."""

    row: int
    index: int
    job: int
    sender: str
    receiver: str
    tensor: int
    numbers: NonfiniteCount


class _Origin(Struct, frozen=True):
    """Who made the numbers of a message from what."""

    text: str
    messages: list[int] = []
    """Indexes that the text names."""
    own_program: bool = False
    """The sender's own program made them: it served no request."""
    looks_back: bool = False
    """What the sender received at any time before matters."""


class NonfiniteTensors(Check):
    def __init__(self, source: CaptureBytes) -> None:
        self._search = NonfiniteSearch(source)

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        self._search.feed(record, kind.type)
        return True

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        self._search.settle()
        if self._search.found:
            for _, made in sorted(self._made(evidence).items()):
                yield self._finding(made[0], made[1:], evidence)

    def _made(self, evidence: CaptureEvidence) -> dict[int, list[_Made]]:
        """Returns job → each worker's first such message, if it had received none; in the order of time."""
        session, columns = evidence.session, evidence.session.messages
        last: dict[int, int] = defaultdict(lambda: -1)
        for row in self._search.found:
            last[evidence.session.job(row)] = max(last[evidence.session.job(row)], int(session.index[row]))
        longer: dict[int, list[LongerTensor]] = defaultdict(list)
        for one in self._search.longer:
            if one.row not in self._search.found:
                longer[one.row].append(one)
        has: dict[tuple[int, str], int] = {}
        """(job, worker) → since when it has such numbers, as far as messages show."""
        made: dict[int, list[_Made]] = defaultdict(list)
        left = MAX_AGAIN
        for row in sorted({*self._search.found, *longer}, key=lambda row: int(session.index[row])):
            job, sender, receiver = session.job(row), session.source(row), session.destination(row)
            if int(session.index[row]) > last[job]:
                continue
            sender_has = has.get((job, sender), columns.time_ns[row] + 1) <= columns.time_ns[row]
            if not (sender_has and (job, receiver) in has):
                left = self._search.look_behind(longer[row], left)
            if row not in self._search.found:
                continue
            if not sender_has:
                tensor, found = self._search.found[row]
                made[job].append(_Made(row, int(session.index[row]), job, sender, receiver, tensor, found))
                has[job, sender] = columns.time_ns[row]
            has.setdefault((job, receiver), columns.end_time_ns[row])
        return made

    def _finding(self, first: _Made, others: list[_Made], evidence: CaptureEvidence) -> Finding:
        doubt = self._doubt(first, evidence)
        origin = _Origin(doubt) if doubt else self._origin(first, evidence)
        its = [row for row in self._search.found if evidence.session.job(row) == first.job]
        what = "message that carries NaN"
        if not first.numbers.nan:
            what = "answer or gradient that carries infinities"
        text = (
            f"#{first.index} from {first.sender} to {first.receiver} is the first {what}: {_share(first)}. "
            f"{origin.text}"
        )
        if origin.looks_back and _begins_late(first.job, evidence):
            text += f" The capture begins after the job: what {first.sender} received before is not in it."
        if len(its) > 1:
            least = (
                "At least "
                if any(evidence.session.job(one.row) == first.job for one in self._search.longer)
                else ""
            )
            verb = "carries" if len(its) == 2 else "carry"
            text += f" {least}{counted(len(its) - 1, 'later message')} {verb} such numbers, too."
        with_nan = [int(evidence.session.index[row]) for row in its if self._search.found[row][1].nan]
        if with_nan and not first.numbers.nan:
            text += f" The first that carries NaN is #{min(with_nan)}."
        if others:
            shown = [f"{one.sender} (#{one.index})" for one in others[:MAX_OTHERS]]
            text += f" As far as the capture shows, {', '.join(shown)} had received none, and sent some, too."
        unread = [row for row in self._search.unread if _is_before(row, first, evidence)]
        if unread and not doubt:
            text += f" Tensors of {counted(len(unread), 'earlier message')} {UNSEEN}."
        jobs = evidence.session.jobs
        if (
            len({clock for (pipe, _), clock in clocks(evidence.session).items() if jobs[pipe] == first.job})
            > 1
        ):
            text += " Their order is that of several clocks, which nobody compared."
        if self._search.untold:
            text += f" Of some tensors only the first {FIRST_BYTES:,} bytes were looked at."
        return Finding(
            code="nonfinite-tensor",
            severity="warning",
            text=text,
            remedy=_remedy(first.sender, origin, doubt),
            messages=tuple(dict.fromkeys([first.index, *origin.messages]))[:MAX_INDEXES],
            workers=tuple(unique([first.sender, first.receiver])),
        )

    def _doubt(self, made: _Made, evidence: CaptureEvidence) -> str | None:
        """Returns why the sender may have received such numbers all the same; None: it has not."""
        session = evidence.session
        names = [worker.name for worker in session.workers if worker.job == made.job and worker.name]
        silent = [name for name in names if name != made.sender and evidence.unheard(name, made.job)]
        if silent:
            return f"Who made them is not known: nothing that {', '.join(silent)} sent is recorded."
        here, others = unseen_hosts(session)
        places = [at for one in session.workers if one.name == made.sender for at in one.addresses]
        if others and not any(host_of(at) == here for at in places):
            return f"Who made them is not known: what {', '.join(others)} send each other is not captured."
        since = evidence.uncaptured.heard_since((made.job, made.sender))
        others = [name for name, time_ns in since.items() if time_ns < session.messages.time_ns[made.row]]
        if others:
            whom = several(others)
            return (
                f"Who made them is not known: what {whom} may have sent to {made.sender} passed no sniffer."
            )
        for pipe in evidence.pipes_to.get((made.job, made.sender), ()):
            if evidence.damaged(pipe, True):
                return f"Who made them is not known: the capture lost messages to {made.sender}."
        for row, missing in self._search.unread.items():
            if session.destination(row) == made.sender and _is_before(row, made, evidence):
                tensors, why = ("bytes", "are missing") if missing else ("tensors", UNSEEN)
                index = int(session.index[row])
                return f"Who made them is not known: {tensors} of #{index}, which {made.sender} got, {why}."
        return None

    def _origin(self, made: _Made, evidence: CaptureEvidence) -> _Origin:
        """Returns who made the numbers from what."""
        session, sender = evidence.session, made.sender
        kind = session.messages.type[made.row]
        edge, context = self._edge_of(made, evidence)
        if edge is not None and context is not None:
            function, asked = self._function(int(session.order[edge.forward]), evidence)
            got = [
                index
                for other in context.edges
                for index in other.backward
                if other.sender == sender and index < made.index
            ]
            source = f", from the finite gradients in {numbers(got)}" if got else ""
            call = f"{function or 'the call'} (#{asked})"
            if edge.forward == asked:
                return _Origin(f"{sender} made them in the backward pass of {call}{source}.", [asked, *got])
            if got:
                part = f"its part of the backward pass, behind the result of {call}{source}"
                return _Origin(f"{sender} made them in {part}.", [asked, *got])
            part = f"behind the result of {call}: in what it computes of it, or in the backward pass of that"
            return _Origin(f"{sender} made them {part}.", [asked], own_program=not _serves(made, evidence))
        masks = [
            int(session.index[row])
            for row in self._search.masks
            if session.destination(row) == sender and _is_before(row, made, evidence)
        ]
        received = "no tensor with such numbers before"
        if masks:
            received = f"infinities among the arguments in {numbers(masks[:MAX_OTHERS])}"
        if is_request(kind) or session.messages.partner[made.row] == NONE:
            own = not _serves(made, evidence)
            return _Origin(f"{sender} had received {received}.", masks, own_program=own, looks_back=True)
        function, asked = self._function(made.row, evidence)
        if session.messages.type[session.messages.partner[made.row]] in FETCHES:
            where = f"{sender} had them in the value of an RRef"
        else:
            where = f"{sender} made them in {function or 'the call'} (#{asked}), or had them, as in weights"
        return _Origin(f"{where}; it had received {received}.", [asked, *masks], looks_back=True)

    def _edge_of(self, made: _Made, evidence: CaptureEvidence) -> tuple[Edge | None, AutogradContext | None]:
        """Returns the edge of a gradient message, and its context."""
        for context in evidence.session.contexts:
            if context.job == made.job:
                for edge in context.edges:
                    if made.index in edge.backward:
                        return edge, context
        return None, None

    def _function(self, row: int, evidence: CaptureEvidence) -> tuple[str | None, int]:
        """Returns what a request, or the request of an answer, calls, and its index."""
        session = evidence.session
        partner = session.messages.partner[row]
        asked = row if session.messages.from_client[row] or partner == NONE else partner
        return session.provenance.kind_of(asked).function, int(session.index[asked])


def _remedy(sender: str, origin: _Origin, doubt: str | None) -> str:
    if doubt and UNSEEN in doubt:
        return "Look at the values of these tensors: decode --message shows them."
    if doubt:
        return "Give the captures or logs of the other hosts together with this one."
    if origin.own_program:
        return (
            f"Look at what {sender}'s own program computes, which a replay does not run: "
            "torch.autograd.set_detect_anomaly(True) in the job names the operation of a backward pass."
        )
    return (
        f"Replay it with --live {sender} --anomaly, which names the operation and the line "
        "of its forward; --stop-at nonfinite stops there."
    )


def _is_before(row: int, made: _Made, evidence: CaptureEvidence) -> bool:
    """Returns whether a message of the same job began before the one that was found."""
    times = evidence.session.messages.time_ns
    return evidence.session.job(row) == made.job and times[row] < times[made.row]


def _begins_late(job: int, evidence: CaptureEvidence) -> bool:
    """Returns whether the first requests of a worker are missing: each agent counts its own from 0."""
    session, columns = evidence.session, evidence.session.messages
    requests = np.asarray(columns.from_client) != 0
    firsts = np.full(len(session.pipes), np.iinfo(np.int64).max)
    np.minimum.at(firsts, np.asarray(columns.pipe)[requests], np.asarray(columns.id)[requests])
    first: dict[str, int] = {}
    for pipe, sender in enumerate(session.clients):
        if evidence.session.jobs[pipe] == job:
            first[sender] = min(first.get(sender, int(firsts[pipe])), int(firsts[pipe]))
    return any(0 < number < np.iinfo(np.int64).max for number in first.values())


def _serves(made: _Made, evidence: CaptureEvidence) -> bool:
    """Returns whether the sender has a request to serve when it sends the message."""
    columns, now = evidence.session.messages, evidence.session.messages.time_ns[made.row]
    pipes = evidence.pipes_to.get((made.job, made.sender), [])
    asked = (np.asarray(columns.from_client) != 0) & np.isin(np.asarray(columns.pipe), pipes)
    asked &= np.frombuffer(evidence.session.messages.housekeeping(), np.int8) == 0
    answers = np.asarray(columns.partner)[asked & (np.asarray(columns.time_ns) < now)]
    return bool(np.any(answers == NONE) or np.any(np.asarray(columns.end_time_ns)[answers] > now))


def _share(made: _Made) -> str:
    """Returns how many elements of which tensor are meant."""
    found = made.numbers
    both = ((found.nan, "NaN"), (found.infinite, "infinite"))
    kinds = [f"{count:,} {name}" for count, name in both if count]
    return f"{' and '.join(kinds)} of {counted(found.elements, 'element')} of tensor#{made.tensor}"
