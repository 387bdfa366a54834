"""`unanswered-request`: requests that never got an answer, though the capture would have shown one.

In: the session. Requests are told apart by why their caller gave them up, where a log tells that, else by
whether their pipe was closed, and left out where answers may be lost in a hole of the capture. How a process
ended, where a recorder tells that (`processes`), decides what to do. Cleanup that a worker did not confirm
because it left is information: nothing waits for it. Of a caller that ended by itself it is said that it has
recorded no answer, not that the callee gave none: answers that come while a process ends are in no log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct, field

from rpcinspect.checks.check import MAX_INDEXES, Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.lost_workers import Departed, departed
from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.rpc.questions import CLEAN_UP
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.model import NONE, CallFailure, Edge, Finding, Session
from rpcinspect.session.provenance import MessageKind
from rpcinspect.session.words import counted, duration, numbers, several, shorten, unique

MAX_TEXT = 200
"""Of the error that a caller got."""
TO_END_NS = 10_000_000_000
"""What a process needs to end, at most: torch's threads may go on for seconds after Python's last line."""

MAX_CHAIN = 12
"""Workers that wait for each other, one after the other, that one finding names."""

UnansweredKey = tuple[int, str, str, str, str]
"""(job, caller, callee, what, why): requests that share a finding."""


class _Open(Struct, eq=False):
    severity: str
    rows: list[int] = field(default_factory=list)


class UnansweredRequests(Check):
    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        session, columns = evidence.session, evidence.session.messages
        rows = np.flatnonzero((np.asarray(columns.from_client) != 0) & (np.asarray(columns.partner) == NONE))
        rows = rows[np.argsort(session.index[rows])]
        longest_ns = _longest_ns(session, {session.provenance.kind_of(row).function for row in rows.tolist()})
        groups: dict[UnansweredKey, _Open] = {}
        passes: dict[int, int] = {}
        """Row of a gradient request without an answer → its context."""
        for row in rows.tolist():
            kind, context = session.provenance.kind_of(row), session.provenance.context_of(row)
            if kind.type == MessageType.BACKWARD_AUTOGRAD_REQ and context is not None:
                passes[row] = context
            if row in session.failures or not evidence.damaged(columns.pipe[row], False):
                severity, why = _judge(evidence, row, kind, longest_ns)
                ends = session.source(row), session.destination(row)
                key = (session.job(row), *ends, kind.what, why)
                groups.setdefault(key, _Open(severity)).rows.append(row)
        waits = _Waits(
            ((job, caller), (job, callee))
            for (job, caller, callee, _, why), found in groups.items()
            if found.severity == "error" and why == SILENT
        )
        unused = _Unused(evidence, passes)
        for key, found in groups.items():
            yield _finding(evidence, key, found, waits, unused)
        yield from _lost(evidence)


def _longest_ns(session: Session, functions: Collection[str | None]) -> Mapping[str | None, int]:
    """Returns the longest time in which each of these functions was answered; 0 for what is no function."""
    columns, provenance = session.messages, session.provenance
    wanted = provenance.of_kinds(lambda kind: kind.function is not None and kind.function in functions)
    partner = np.asarray(columns.partner)
    rows = np.flatnonzero(wanted & (partner != NONE))
    took = np.asarray(columns.end_time_ns)[partner[rows]] - np.asarray(columns.time_ns)[rows]
    of_kind = np.zeros(len(provenance.kinds), np.int64)
    np.maximum.at(of_kind, np.asarray(provenance.kind)[rows], took)
    found: dict[str | None, int] = {}
    for kind, longest in zip(provenance.kinds, of_kind.tolist(), strict=True):
        found[kind.function] = max(longest, found.get(kind.function, 0))
    return found


def _judge(
    evidence: CaptureEvidence, row: int, kind: MessageKind, longest_ns: Mapping[str | None, int]
) -> tuple[str, str]:
    """Returns the severity, and one of the reasons below."""
    columns = evidence.session.messages
    failure = evidence.session.failures.get(row)
    end = evidence.end(columns.pipe[row])
    if failure is not None and (end is None or failure.reason != CONNECTION):
        return "info" if kind.type in CLEAN_UP else "error", failure.reason
    if end is not None:
        if kind.type in CLEAN_UP:
            return "info", CALLER_LEFT if end.by_client else LEFT
        return "error", CALLER_CLOSED if end.by_client else CLOSED
    if evidence.cut_off(columns.time_ns[row], longest_ns[kind.function] / 1e9):
        return "info", EARLY
    left = _caller_left(evidence, row)
    if left is not None:
        return "info" if left.ended.well else "error", CALLER_ENDED
    return "error", SILENT


def _caller_left(evidence: CaptureEvidence, row: int) -> Departed | None:
    """The caller, if its process ended by itself and the callee's did not end before: a log has answers
    from their caller, which writes none once it ends. Signals prove nothing: a launcher sends them to
    all, in any order.
    """
    columns = evidence.session.messages
    job, pipe = evidence.session.job(row), evidence.session.pipes[columns.pipe[row]]
    caller = departed(evidence, evidence.session.source(row), job) if pipe.logged else None
    callee = departed(evidence, evidence.session.destination(row), job)
    if caller is None or caller.ended.how != "exit":
        return None
    ended_ns = caller.ended.time_ns
    if ended_ns is None or ended_ns > columns.time_ns[row] + TO_END_NS:
        return None
    if callee is None or callee.worker == caller.worker or not caller.timed:
        return caller
    return caller if callee.ended.time_ns is not None and ended_ns < callee.ended.time_ns else None


def _finding(
    evidence: CaptureEvidence, key: UnansweredKey, found: _Open, waits: _Waits, unused: _Unused
) -> Finding:
    job, caller, callee, what, why = key
    indexes = evidence.session.indexes(found.rows[:MAX_INDEXES])
    it = "it" if len(found.rows) == 1 else "the first of them"
    began_ns = min(evidence.session.messages.time_ns[row] for row in found.rows)
    left = duration(evidence.last_ns - began_ns)
    failures = [evidence.session.failures[row] for row in found.rows if row in evidence.session.failures]
    cause = CAUSES[why].format(left=left, caller=caller, it=it, waited=_waited(failures, began_ns))
    which = f"{counted(len(found.rows), 'request')}{{}} ({what} {numbers(indexes)}): {cause}"
    if why == CALLER_ENDED:
        text = f"{caller} recorded no answer of {callee} to {which.format('')}"
    elif why == TIMEOUT:  # one that comes later is in no log
        text = f"{callee} did not answer {which.format(f' of {caller} in time')}{_quoted(failures)}"
    else:
        verb = "has not answered" if why == EARLY else "never answered"
        text = f"{callee} {verb} {which.format(f' of {caller}')}{_quoted(failures)}"
    chain: list[str] = []
    if why == SILENT:
        chain, words = waits.after((job, caller), (job, callee))
        text += words
    gone = _gone(evidence, key, found, failures)
    if gone is not None:
        text += gone.clause(began_ns, it)
    awaited = unused.of(job, callee, found.rows) if found.severity == "error" else []
    remedy = REMEDIES[why].format(caller=caller, callee=callee)
    if gone is not None and not (why == CALLER_ENDED and gone.ended.well):
        remedy = gone.remedy(evidence)
    if awaited:
        until = "until then it waited" if why in (CLOSED, CALLER_CLOSED) else "it waits"
        text += f"; {until} for the gradient of {numbers(awaited)}, which never came"
        remedy = "Fix that first: see the missing-gradient finding of the same context."
    return Finding(
        code="unanswered-request",
        severity=found.severity,
        text=f"{text}.",
        remedy=remedy,
        messages=indexes,
        workers=unique([caller, callee, *chain]),
    )


def _gone(
    evidence: CaptureEvidence, key: UnansweredKey, found: _Open, failures: Sequence[CallFailure]
) -> Departed | None:
    """The worker that ended before it answered, or before it got the answer."""
    job, caller, callee, _, why = key
    given_up = min([failure.time_ns for failure in failures], default=None)
    end = evidence.end(evidence.session.messages.pipe[found.rows[0]])
    if given_up is None and end is not None:
        given_up = end.time_ns
    who = caller if why in (CALLER_CLOSED, CALLER_LEFT, CALLER_ENDED) else callee
    return departed(evidence, who, job, given_up, by_its_end=why not in (TIMEOUT, ERROR))


def _waited(failures: Sequence[CallFailure], began_ns: int) -> str:
    """How long the caller waited for the first of some requests."""
    return duration(max(0, min(failure.time_ns for failure in failures) - began_ns)) if failures else ""


class _Unused:
    """Forward messages whose gradient never came, for which passes that nobody answered wait."""

    def __init__(self, evidence: CaptureEvidence, passes: Mapping[int, int]) -> None:
        """`passes`: row of a gradient request without an answer → its context."""
        self._run = evidence
        self._passes = passes
        wanted = {(evidence.session.job(row), context) for row, context in passes.items()}
        self._edges: dict[tuple[int, int, str], list[Edge]] = defaultdict(list)
        """(job, context, sender) → its edges without a gradient."""
        for context in evidence.session.contexts if wanted else ():
            if context.key in wanted:
                for edge in context.edges:
                    if not edge.backward and not evidence.damaged_between(edge.receiver, edge.sender):
                        self._edges[context.job, context.context_id, edge.sender].append(edge)

    def of(self, job: int, worker: str, rows: Sequence[int]) -> list[int]:
        """Returns a worker's messages from before the requests, or the last of them, that asked it into the
        pass."""
        index = self._run.session.index
        asked = {self._passes[row]: int(index[row]) for row in rows if row in self._passes}
        return sorted(
            edge.forward
            for context, before in asked.items()
            for edge in self._edges.get((job, context, worker), ())
            if edge.forward < before
        )


class _Waits:
    """Who waits for whom, in one direction."""

    def __init__(self, pairs: Iterable[tuple[WorkerKey, WorkerKey]]) -> None:
        self._for: dict[WorkerKey, dict[WorkerKey, None]] = defaultdict(dict)
        for caller, callee in pairs:
            self._for[caller].setdefault(callee)
        self._circle = circles(self._for)
        self._size = Counter(self._circle.values())

    def after(self, caller: WorkerKey, callee: WorkerKey) -> tuple[list[str], str]:
        """Who waits for whom from the callee on, until the end, until somebody comes twice, or for so many
        names as a person reads; and what a sentence says of that.
        """
        chain = {callee: None}
        last, more = callee, False
        while last != caller:
            others = self._for.get(last, {})
            following = (
                caller if caller in others else next((one for one in others if one not in chain), None)
            )
            more = following is not None and len(chain) == MAX_CHAIN
            if following is None or more:
                break
            last = following
            chain[last] = None
        names = [name for _, name in chain]
        rest = ", and so on" if more else ""
        if last == caller:
            return names, f"; they wait for each other: {' → '.join([caller[1], *names])}"
        if more and self._circle[caller] == self._circle[callee]:
            size = self._size[self._circle[caller]]
            told = " → ".join([caller[1], *names])
            return names, f"; {size:,} workers wait for each other in a circle: {told}{rest}"
        if len(names) > 1:
            return names, f"; {callee[1]} itself waits for {' → '.join(names[1:])}{rest}"
        return names, ""


def _quoted(failures: Sequence[CallFailure]) -> str:
    """Returns the first line of the error that the first caller got."""
    line = failures[0].text.partition("\n")[0] if failures else ""
    return f" ({shorten(line, MAX_TEXT)})" if line else ""


def _lost(evidence: CaptureEvidence) -> Iterable[Finding]:
    """Returns calls that ended without an answer and whose request is in no log."""
    groups: dict[tuple[int, str, str, str], list[CallFailure]] = defaultdict(list)
    for failure in evidence.session.lost_calls:
        groups[evidence.session.jobs[failure.pipe], failure.caller, failure.callee, failure.reason].append(
            failure
        )
    for (job, caller, callee, reason), failures in groups.items():
        told_ns = min(failure.time_ns for failure in failures)
        gone = departed(evidence, callee, job, told_ns, by_its_end=reason == CONNECTION)
        clause = "" if gone is None else gone.clause(told_ns, "that")
        kinds = several(unique(type_name(f.type) for f in failures if f.type is not None))
        many = f"{counted(len(failures), 'request')} that the log does not hold{kinds and f' ({kinds})'}"
        yield Finding(
            code="unanswered-request",
            severity="error",
            text=f"{caller} got no answer of {callee} to {many}: {ENDED[reason]}{_quoted(failures)}{clause}.",
            remedy=gone.remedy(evidence) if gone else REMEDIES[reason].format(caller=caller, callee=callee),
            workers=unique([caller, callee]),
        )


CLOSED, CALLER_CLOSED, LEFT, CALLER_LEFT = "closed", "caller closed", "left", "caller left"
EARLY, SILENT, CALLER_ENDED = "early", "silent", "caller ended"
TIMEOUT, CONNECTION, ERROR = "timeout", "connection", "error"
"""As a `CallFailure` has it."""

CAUSES = {
    CLOSED: "it closed the connection first",
    CALLER_CLOSED: "{caller} itself closed the connection first",
    LEFT: "it left first, and nothing waits for the cleanup",
    CALLER_LEFT: "{caller} itself left first, and nothing waits for the cleanup",
    EARLY: "the capture ends {left} after {it}, too early to expect an answer",
    SILENT: "{left} later, when the capture ends, none has come",
    CALLER_ENDED: "answers that come while it ends are not recorded",
    TIMEOUT: "{caller} timed out {waited} after {it}",
    CONNECTION: "the connection broke {waited} after {it}",
    ERROR: "the agent of {caller} ended the call {waited} after {it}",
}
ENDED = {TIMEOUT: "a timeout", CONNECTION: "the connection broke", ERROR: "its agent ended the call"}
REMEDIES = {
    CLOSED: "Check the log of {callee} for why it ended or disconnected.",
    CALLER_CLOSED: "Check the log of {caller} for why it ended or disconnected.",
    LEFT: "Let workers leave together: rpc.shutdown(graceful=True).",
    CALLER_LEFT: "Let workers leave together: rpc.shutdown(graceful=True).",
    EARLY: "Capture a little longer to see the answer.",
    SILENT: "See what {callee} is doing (py-spy dump): it may wait for a lock, for another worker or for a "
    "free thread (num_worker_threads).",
    CALLER_ENDED: "Let {caller} wait for its answers and leave with the others: rpc.shutdown(graceful=True).",
    TIMEOUT: "See what {callee} was doing until then; if it is only slow, give the call more time: timeout=.",
    CONNECTION: "Check the log of {callee} for why it ended or disconnected.",
    ERROR: "Check the log of {caller} for what its agent reports.",
}


T = TypeVar("T", bound=Hashable)


def circles(waits: Mapping[T, Collection[T]]) -> dict[T, int]:
    """Finds circles of waiting: the strongly connected parts of a graph, by Tarjan's algorithm, in linear
    time. Returns a number for each member of the graph; members of one circle have the same.

    Without recursion: a chain of waiting workers may be longer than Python's stack.
    """
    order: dict[T, int] = {}
    low: dict[T, int] = {}
    part: dict[T, int] = {}
    open_: list[T] = []
    """Visited, and in no part yet."""
    for start in waits:
        if start in order:
            continue
        order[start] = low[start] = len(order)
        open_.append(start)
        path: list[tuple[T, Iterator[T]]] = [(start, iter(waits[start]))]
        while path:
            node, others = path[-1]
            other = next((one for one in others if one not in part), None)
            if other is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    number = len(part)
                    while node not in part:
                        part[open_.pop()] = number
            elif other in order:
                low[node] = min(low[node], order[other])
            else:
                order[other] = low[other] = len(order)
                open_.append(other)
                path.append((other, iter(waits.get(other, ()))))
    return part
