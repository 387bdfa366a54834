"""`error-response`: which worker failed first, with what, and whom the error reached.

Answers that report an error are few, so that each leaves its text, up to a limit. In the end they are put
into *cascades*: an error was passed on if it arrived at a worker while that worker served another request,
and the text of the answer to that request quotes it. What no other error explains is a root; roots that say
the same on the same worker, but for numbers, are one finding.

An error of a connection is about the worker at its other end (`lost_workers.py`), not about the messenger.
What the function of an RRef raised is kept, and each fetch is answered by it: the error is that function's.
A text that quotes an error which the worker got before that request, in words of its own, is a new error.
One that quotes several errors side by side passes all of them on; which was first is known only if the later
worker was asked after the earlier error had arrived. Where the error that a text names was not captured, the
text alone says which worker failed first.

`run.causes` is not asked: it needs the findings, since a loss that one tells of leaves no cause certain; and
quoting is another relation. Of two requests that a worker had open, both may be the cause of a call, while
only one of their answers quotes the error that came back. Nor may quotes become evidence of causes: they are
texts of the user's, which say the same of errors that have nothing to do with each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.checks.check import MAX_INDEXES, Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.lost_workers import LATE, OF_TENSORPIPE, Loss, Losses
from rpcinspect.late_pattern import late
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import FETCHES
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import Origin, error_of, origin, quoting, readable
from rpcinspect.session.model import NONE, Finding
from rpcinspect.session.provenance import Id, MessageKind, What
from rpcinspect.session.words import numbers, several, shorten, unique

ANSWERS = frozenset({MessageType.PYTHON_RET, MessageType.PYTHON_RREF_FETCH_RET, MessageType.EXCEPTION})
"""Answers that may report an error."""
MAX_TEXT = 1 << 14
"""Characters of one error's text that are kept."""
MAX_TEXTS = 1 << 22
"""Of all texts; later ones are kept as far as a sentence needs them."""
MAX_SHOWN = 300
MAX_LOOKED_AT = 64
"""Errors that arrived at a worker before, among which the cause of the next one is looked for."""
MAX_BESIDE = 8
"""Errors that one error passes on side by side."""
MAX_LOSSES = 1024
"""Errors of connections of which it is asked whom they are about."""
NUMBER = late(r"0x[0-9a-fA-F]+|[0-9]+")


class _Failure(Struct, eq=False):
    """An answer that reports an error."""

    row: int
    type: str | None
    """`app.MyError`, of a pickled RemoteException."""
    text: str
    function: str | None = None
    """What the request called, or which kind of message it was."""
    served: int = NONE
    """Row of the request during which it was raised."""
    rref: Id | None = None
    """The one that keeps it."""
    origin: Origin | None = None
    """Where it was raised and what it was there, if not as its text reads."""
    loss: Loss | None = None
    """Whom it is about, if it is of a connection."""


class _Root(Struct, eq=False):
    """Errors that were raised alike on one worker."""

    failure: _Failure
    rows: list[int] = field(default_factory=list)
    """Of all answers that report it."""
    reached: dict[str, None] = field(default_factory=dict)
    """The workers that it came to, in order."""
    raised: set[object] = field(default_factory=set)
    """One for each time: the answer, or the RRef that keeps the error."""
    causes: dict[str, None] = field(default_factory=dict)
    """What each said, in order."""
    functions: dict[str | None, None] = field(default_factory=dict)
    """In which it was raised, in order."""
    beside: dict[str, set[bool | None]] = field(default_factory=lambda: defaultdict(set))
    """Workers whose errors were passed on side by side with these → whether they failed before these, each
    time; None where that is not known."""


class ErrorResponses(Check):
    KINDS = ANSWERS

    def __init__(self) -> None:
        self._failures: dict[int, _Failure] = {}
        self._texts: dict[str, str] = {}
        self._characters = 0

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        error = error_of(record) if kind.failed else None
        if error is not None:
            name = None if error.type is None else shorten(error.type, MAX_SHOWN)
            self._failures[record.row] = _Failure(record.row, name, self._keep(error.text[:MAX_TEXT]))
        return kind.failed

    def _keep(self, text: str) -> str:
        known = self._texts.get(text)
        if known is not None:
            return known
        if self._characters >= MAX_TEXTS:
            return text[:MAX_SHOWN]
        self._characters += len(text)
        return self._texts.setdefault(text, text)

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        columns = evidence.session.messages
        failures = sorted(self._failures.values(), key=lambda f: int(evidence.session.index[f.row]))
        _find_served(evidence, failures)
        causes = self._causes(evidence, failures)
        roots: dict[tuple[int, str, str, Loss | None], _Root] = {}
        firsts: dict[int, list[_Failure]] = {}
        losses = Losses(evidence)
        told_losses = 0
        lost: dict[tuple[int, str, str], dict[Loss, None]] = defaultdict(dict)
        for failure in failures:  # in the order of time: what a failure passes on comes before it
            passed_on = causes.get(failure.row, [])
            origins = {first.row: first for before in passed_on for first in firsts[before.row]}
            firsts[failure.row] = list(origins.values())[:MAX_BESIDE] or [failure]
            its: dict[tuple[int, str, str, Loss | None], _Failure] = {}
            for first in firsts[failure.row]:
                told = first.origin or origin(first.text)
                job, place = evidence.session.job(first.row), self._place(evidence, first, told.nodes)
                cause = NUMBER.sub("0", told.cause)
                if first is failure and told_losses < MAX_LOSSES:
                    first.loss = _loss(evidence, losses, place, first, told.cause)
                    told_losses += first.loss is not None
                loss = first.loss
                if loss is None:
                    known = lost[job, place, cause]
                    whom = next(iter(known)) if len(known) == 1 else None  # it is lost once, and missed again
                else:
                    whom = replace(loss, row=None)  # which request was left open is another one each time
                    lost[job, place, cause].setdefault(whom)
                key = job, place, cause, whom
                root = roots.setdefault(key, _Root(first))
                root.raised.add(first.row if first.rref is None else first.rref)
                root.causes.setdefault(told.cause)
                root.functions.setdefault(first.function)
                if its.setdefault(key, first) is not first:
                    continue
                root.rows.append(failure.row)
                if not passed_on:  # else messages tell the way; who else is named was quoted by somebody
                    for node in reversed(told.nodes):
                        if node not in told.beside:
                            root.reached.setdefault(evidence.session.by_id(node, job))
                root.reached.setdefault(evidence.session.source(failure.row))
                if columns.partner[failure.row] != NONE:
                    root.reached.setdefault(evidence.session.destination(failure.row))
            text_alone = _told_beside(evidence, failure, passed_on)
            for key, first in its.items():
                for (_, place, _, _), other in its.items():
                    if place != key[1]:
                        roots[key].beside[place].add(_is_before(evidence, other, first))
                for place in text_alone:
                    if place != key[1]:
                        roots[key].beside[place].add(None)
        for (_, place, _, _), root in roots.items():
            yield _finding(evidence, place, root)

    @staticmethod
    def _place(evidence: CaptureEvidence, failure: _Failure, nodes: tuple[int, ...]) -> str:
        """Returns the worker that raised an error: by its text, else the one that answered."""
        return (
            evidence.session.by_id(nodes[-1], evidence.session.job(failure.row))
            if nodes
            else evidence.session.source(failure.row)
        )

    @staticmethod
    def _causes(evidence: CaptureEvidence, failures: list[_Failure]) -> dict[int, list[_Failure]]:
        """Returns row → the errors that it passes on; of errors that quote older ones the origin is set."""
        session, columns = evidence.session, evidence.session.messages
        arrived: dict[tuple[int, str], list[_Failure]] = defaultdict(list)
        found: dict[int, list[_Failure]] = {}
        for failure in failures:
            row = failure.row
            served = failure.served
            job = evidence.session.job(row)
            quoted = [
                before
                for before in reversed(arrived[job, session.source(row)][-MAX_LOOKED_AT:])
                if columns.partner[before.row] != NONE
                and columns.end_time_ns[before.row] <= columns.time_ns[row]
                and _quotes(failure.text, before.text)
            ]
            since_ns = 0 if served == NONE else columns.end_time_ns[served]
            its = [one for one in quoted if columns.time_ns[columns.partner[one.row]] >= since_ns]
            if its:
                found[row] = _side_by_side(its)
            elif quoted and len(origin(failure.text).nodes) > 1:
                failure.origin = quoting(failure.text)
                if failure.origin is None:  # it was asked for before, and awaited here
                    found[row] = quoted[:1]
            arrived[job, session.destination(row)].append(failure)
        return found


def _loss(
    evidence: CaptureEvidence, losses: Losses, place: str, failure: _Failure, cause: str
) -> Loss | None:
    """Returns the loss that an error at a place is about."""
    session, columns, row = evidence.session, evidence.session.messages, failure.row
    known = session.source(row) == place and failure.served != NONE
    since_ns = columns.end_time_ns[failure.served] if known else 0
    return losses.told_by(cause, session.job(row), place, since_ns, columns.time_ns[row])


def _side_by_side(quoted: Sequence[_Failure]) -> list[_Failure]:
    """Returns which of the errors that a text quotes stand there for themselves: of those that begin alike,
    or of which one quotes the other, the first that is given."""
    found: list[_Failure] = []
    for one in quoted:
        alone = all(not (_quotes(one.text, it.text) or _quotes(it.text, one.text)) for it in found)
        if alone and len(found) < MAX_BESIDE:
            found.append(one)
    return found


def _told_beside(evidence: CaptureEvidence, failure: _Failure, passed_on: Sequence[_Failure]) -> list[str]:
    """Returns workers of whose errors, beside those that it passes on, only this one's text tells."""
    told, job = failure.origin or origin(failure.text), evidence.session.job(failure.row)
    known = {node for one in passed_on for node in origin(one.text).nodes}
    beside = [*told.beside, told.nodes[-1]] if told.beside else []
    return [evidence.session.by_id(node, job) for node in beside if node not in known]


def _is_before(evidence: CaptureEvidence, one: _Failure, other: _Failure) -> bool | None:
    """Returns whether an error was there before the other one; None where that is not known, since their
    workers were busy at the same time, or those that asked them have clocks that nobody compared, or not so
    well."""
    columns = evidence.session.messages
    for earlier, later in ((one, other), (other, one)):
        if later.served != NONE and evidence.clock(earlier.row) == evidence.clock(later.served):
            doubt_ns = evidence.doubt_ns(earlier.row, later.served)
            if columns.end_time_ns[earlier.row] + doubt_ns <= columns.time_ns[later.served]:
                return earlier is one
    return None


def _find_served(evidence: CaptureEvidence, failures: Sequence[_Failure]) -> None:
    """During which request each error was raised: that of a fetch while the RRef's function ran."""
    session, kind_of = evidence.session, evidence.session.provenance.kind_of
    for failure in failures:
        failure.served = session.messages.partner[failure.row]
        failure.function = None if failure.served == NONE else kind_of(failure.served).what
    fetches = {
        one.served: one for one in failures if one.served != NONE and kind_of(one.served).type in FETCHES
    }
    if not fetches:
        return
    rrefs = {(rref.job, rref.rref_id): rref for rref in session.rrefs}
    for event in session.provenance.events():
        fetch = fetches.get(event.row) if event.what == What.FETCHED else None
        if fetch is not None:
            fetch.rref = event.rref
            rref = rrefs.get((evidence.session.job(event.row), event.rref))
            what, created = (None, None) if rref is None else (rref.what, rref.created)
            fetch.function = what or f"the function of RRef {event.rref[0]}:{event.rref[1]}"
            fetch.served = NONE if created is None else int(session.order[created])


def _may_be_passed_on(evidence: CaptureEvidence, failure: _Failure) -> bool:
    """Returns whether the error may have come to the worker from another one, in a message that the capture
    does not have since it passed no sniffer."""
    session, uncaptured = evidence.session, evidence.uncaptured
    member = session.job(failure.row), session.source(failure.row)
    since = min(uncaptured.since(member), uncaptured.answered_since(member))
    return since <= session.messages.time_ns[failure.row]


def _finding(evidence: CaptureEvidence, place: str, root: _Root) -> Finding:
    failure, session, loss, cause = root.failure, evidence.session, root.failure.loss, next(iter(root.causes))
    what = shorten(readable(cause) or failure.type or "an error", MAX_SHOWN)
    if failure.type is not None and not failure.type.startswith("builtins."):
        what = f"{what} ({failure.type})"
    functions = [function for function in root.functions if function is not None]
    where = f" in {several(functions)}" if functions else ""
    times = f", {len(root.raised):,} times" if len(root.raised) > 1 else ""
    if len(root.causes) > 1:
        times += " (only numbers differ)"
    workers = unique([*([] if loss is None else [loss.worker]), place, *root.reached])
    others = several(
        [worker for worker in workers if worker != place and (not loss or worker != loss.worker)]
    )
    passed = f"; the error reached {others}" if others else ""
    rows = root.rows[:MAX_INDEXES]
    look = int(session.index[failure.row])
    if loss is not None:
        open_row = loss.row
        if open_row is not None:
            look = int(session.index[open_row])
            rows = [*rows[: MAX_INDEXES - 1], open_row]
        asked = "" if open_row is None else f" ({numbers([look])})"
        text = (
            f"{loss.worker} {LOST[loss.how].format(caller=loss.caller, asked=asked)}: {place} failed{where}"
        )
        remedy = REMEDIES[loss.how].format(worker=loss.worker)
    elif OF_TENSORPIPE.search(cause):
        text = f"{place} lost a connection{where}, and the capture does not tell to whom"
        remedy = f"See in the log of {place} whom it lost"
    elif LATE.search(cause):
        text = f"{place} got no answer in time{where}, and the capture does not tell of whom"
        remedy = f"See in the log of {place} whom it asked"
    else:
        by = session.source(failure.row)
        after = [worker for worker, told in root.beside.items() if told == {True}]
        unsure = [worker for worker, told in root.beside.items() if told not in ({True}, {False})]
        text = f"{place} failed"
        if by == place and not (unsure or after) and _may_be_passed_on(evidence, failure):
            times += ", as far as the capture shows"
        if not unsure:
            text += f" after {several(after)}" if after else " first"
        else:
            times += f" (whether before {several(unsure)} is not known)"
        text += where if by == place else f", as the text of the error of {by}{where} says"
        remedy = f"Fix {place} first: the other errors follow from it. Full text"
        if root.beside:
            remedy = f"Fix {several([place, *root.beside])}: one error quotes those of each. Full text"
    return Finding(
        code="error-response",
        severity="error",
        text=f"{text}{times}: {what}{passed}." if loss is None else f"{text}{times} with {what}{passed}.",
        remedy=f"{remedy}: rpcinspect decode FILE --message {look}",
        messages=session.indexes(rows),
        workers=workers,
    )


LOST = {
    "closed": "closed its connection to {caller} first, with a request open{asked}",
    "reset": "reset its connection to {caller} first, with a request open{asked}",
    "lost": "was lost to {caller} with a request open{asked}",
    "late": "did not answer {caller} in time{asked}",
    "refused": "refused a connection from {caller}",
}
REMEDIES = {
    **dict.fromkeys(
        ("closed", "reset", "lost"), "See in the log of {worker} why it ended; what it was asked"
    ),
    "late": "See what {worker} was doing; if it is only slow, give it more time (timeout=). The request",
    "refused": "Check whether {worker} still runs. The error",
}


def _quotes(text: str, inner: str) -> bool:
    """Returns whether a text holds the first line of another one, which a `repr` may have quoted."""
    line = inner.partition("\n")[0][:MAX_SHOWN]
    return bool(line) and line in text
