"""`sequential-awaits` and `empty-results`: what calls cost that could be made otherwise.

In: records as they become complete; then the session. Out: findings, and only of what takes a part of the run
that its user would feel. Kept are numbers of calls and answers: see `contents`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from rpcinspect.checks.check import MAX_INDEXES, Check
from rpcinspect.checks.contents import CallContents, Holds
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.turns import Turn, chains, paced, program_requests, turns, what_of
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.model import Finding, Session
from rpcinspect.session.provenance import MessageKind, mark_of
from rpcinspect.session.words import counted, duration, numbers, several, unique
from rpcinspect.tcp.ranges import CaptureBytes


class Costs(Check):
    KINDS = frozenset(
        {MessageType.PYTHON_CALL, MessageType.SCRIPT_CALL, MessageType.PYTHON_RET, MessageType.SCRIPT_RET}
    )

    def __init__(self, source: CaptureBytes) -> None:
        self._contents = CallContents(source)

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        return self._contents.feed(record, kind)

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        calls = self._contents.calls()
        if not self._contents.any_empty and not _several_callees(evidence.session, calls):
            return
        found = turns(evidence.session, calls)
        shares = Shares(evidence.session)
        rounds = find_rounds(evidence, self._contents, found)
        yield from sequential_awaits(evidence, shares, rounds)
        told = {row for one in rounds for row in one.rows}
        yield from empty_results(evidence, shares, self._contents, found, told)


def _several_callees(session: Session, calls: Collection[int]) -> bool:
    """Returns whether any worker of a job sends these calls to more than one other: only such calls might
    wait for each other without need."""
    pipes = {session.messages.pipe[row] for row in calls}
    pairs = {(session.jobs[pipe], session.clients[pipe], session.servers[pipe]) for pipe in pipes}
    return len({pair[:2] for pair in pairs}) < len(pairs)


LEAST_NS = 10_000_000
"""Less is within what one start of a job differs from the next one."""
LEAST_SHARE = 0.05
"""Of the run: less is hard to feel, and to measure."""


class Shares:
    def __init__(self, session: Session) -> None:
        columns = session.messages
        jobs = np.asarray(session.jobs, dtype=np.int64)[np.asarray(columns.pipe)]
        begin, end = np.asarray(columns.time_ns), np.asarray(columns.end_time_ns)
        self._runs: dict[int, int] = {}
        for job in {session.jobs[pipe] for pipe in set(columns.pipe)}:
            its = np.flatnonzero(jobs == job)
            self._runs[job] = int(end[its].max()) - int(begin[its].min())  # any of 64 bits

    def worth_telling(self, job: int, time_ns: int) -> bool:
        """Returns whether a time is long enough, by itself and as a share of the run, to be told."""
        return time_ns >= LEAST_NS and time_ns >= LEAST_SHARE * self._runs.get(job, 0)

    def of(self, job: int, time_ns: int) -> str:
        """`12 % of the run`."""
        return f"{time_ns / max(1, self._runs.get(job, 0)):.0%} of the run".replace("%", " %")


CHANCE = 1 / 256
"""Less often than that, what is taken for waiting is one by chance."""
STEADY = 3
"""A caller that waits goes on at once so many times as often as not."""
LEAST = 10
"""Calls that are many."""
IN_A_ROW = 5
"""Turns of a chain, after all of which but the last the caller went on at once: by chance that is so in one
case of 256."""


def empty_results(
    evidence: CaptureEvidence,
    shares: Shares,
    contents: CallContents,
    turns: Mapping[WorkerKey, Sequence[Turn]],
    told: Collection[int],
) -> Iterator[Finding]:
    """Yields findings about calls without a result; calls in `told` have a finding already."""
    session, holds, sizes = evidence.session, contents.holds(), contents.calls()
    for (job, caller), its in turns.items():
        waited: dict[str, list[int]] = defaultdict(list)
        for turn in (turn for chain in chains(its) if len(chain) >= IN_A_ROW for turn in chain):
            if turn.goes_on and holds.get(turn.answer) == Holds.NOTHING and turn.row not in told:
                waited[what_of(session, turn.row)].append(turn.row)
        for what, rows in waited.items():
            took = sum(session.messages.latency_ns(row) or 0 for row in rows)
            if len(rows) >= LEAST and shares.worth_telling(job, took):
                callees, indexes = unique(map(session.destination, rows)), session.indexes(rows)
                yield Finding(
                    code="empty-results",
                    severity="info",
                    text=f"{caller} waited {duration(took)} ({shares.of(job, took)}) for "
                    f"{counted(len(rows), 'answer')} of {several(callees)} to {what} ({numbers(indexes)}) "
                    f"that hold nothing; the requests are {sum(sizes[row] for row in rows):,} bytes.",
                    remedy="A call may be made for its effect, or to wait (a barrier). Where the next step "
                    "does not depend on it, it costs less to wait once for many (rpc_async), to send many in "
                    "one call, or not to wait at all (rpc.remote).",
                    messages=indexes[:MAX_INDEXES],
                    workers=unique([caller, *callees]),
                )


Round = Sequence[Turn]
Succession = tuple[str, str, str, str]
"""Two functions that are called one after the other, and their workers."""


class Rounds(Struct, frozen=True):
    """Rounds of one caller with the same calls."""

    caller: WorkerKey
    what: str
    rounds: tuple[Round, ...]

    @property
    def rows(self) -> list[int]:
        """Rows of the calls, in the order of time."""
        return [turn.row for its in self.rounds for turn in its]


def sequential_awaits(evidence: CaptureEvidence, shares: Shares, told: Iterable[Rounds]) -> Iterator[Finding]:
    """Yields findings about rounds that take enough of the run."""
    for rounds in told:
        session, (job, caller) = evidence.session, rounds.caller
        saved = sum(_saved_ns(session, its) for its in rounds.rounds)
        if not shares.worth_telling(job, saved):
            continue
        calls = rounds.rows
        took = sum(session.messages.latency_ns(row) or 0 for row in calls)
        callees = unique(session.destination(row) for row in calls)
        indexes = session.indexes(calls)
        yield Finding(
            code="sequential-awaits",
            severity="info",
            text=f"{caller} made {counted(len(calls), 'call')} of {rounds.what} to {several(callees)} one "
            f"after the other ({numbers(indexes)}), and no call is given what another one brought: "
            f"{duration(took)} in {counted(len(rounds.rounds), 'round')}. If {caller} waits for each, "
            f"and they may run at the same time, that saves about {duration(saved)} "
            f"({shares.of(job, saved)}).",
            remedy="If no call depends on an earlier one in another way (its effect, or an answer that "
            f"{caller} looks at), send the calls of a round by rpc_async, then wait for all of them "
            "(torch.futures.wait_all). Workers that share a processor gain less.",
            messages=indexes[:MAX_INDEXES],
            workers=unique([caller, *callees]),
        )


def _saved_ns(session: Session, its: Round) -> int:
    """Returns the sum of all but the longest time in which callees were busy: requests and answers share the
    caller's network."""
    begin, end = session.messages.time_ns, session.messages.end_time_ns
    busy = [max(0, begin[turn.answer] - end[turn.row]) for turn in its]
    return sum(busy) - max(busy)


def find_rounds(
    evidence: CaptureEvidence, contents: CallContents, turns: Mapping[WorkerKey, Sequence[Turn]]
) -> list[Rounds]:
    """Returns all rounds of calls that do not need each other."""
    in_chains = {member: list(chains(its)) for member, its in turns.items()}
    every = [turn for its in in_chains.values() for chain in its for turn in chain]
    if not every:
        return []
    finder = _Finder(evidence.session, contents, every)
    found = []
    for member, its in in_chains.items():
        rounds: dict[str, list[Round]] = defaultdict(list)
        for chain in its:
            for one in finder.rounds(chain):
                if finder.independent(member, one):
                    rounds[what_of(evidence.session, one[0].row)].append(one)
        deciding = finder.deciding(turns[member]) if rounds else frozenset()
        steps = finder.steps(turns[member]) if rounds else {}
        for what, those in rounds.items():
            steady = [one for one in those if finder.steady(one, steps)]
            if what not in deciding and _waited_for(steady):
                found.append(Rounds(member, what, tuple(steady)))
    return found


def _waited_for(rounds: Sequence[Round]) -> bool:
    """Returns whether the caller waited for each answer before its next call: its pauses are so short, beside
    the calls, that they are not by chance, and no timer of its own explains them."""
    turns = [turn for its in rounds for turn in its[:-1]]
    slowest = max((turn.pause_ns / max(1, turn.took_ns) for turn in turns), default=1.0)
    return slowest ** len(turns) <= CHANCE and not paced(turns)


class _Finder:
    """Answers questions about calls that one worker makes one after the other."""

    def __init__(self, session: Session, contents: CallContents, turns: Sequence[Turn]) -> None:
        self._session = session
        self._holds = contents.holds()
        rows, answers = {turn.row for turn in turns}, {turn.answer for turn in turns}
        self._given = contents.given(rows, session.provenance)
        self._marks = contents.marks(answers)
        self._tensors = session.provenance.tensors(rows | answers)
        self._opaque = set(session.provenance.opaque(answers))
        self._brought = session.provenance.brought()
        self._sent = _sent(session)
        self._ids = {(worker.job, worker.name): worker.id for worker in session.workers}

    def rounds(self, chain: Iterable[Turn]) -> Iterator[Round]:
        """Yields calls of one function, each to another worker than those before, two at least."""
        session = self._session
        current: list[Turn] = []
        key: object = None
        for turn in chain:
            kind, holds = session.provenance.kind_of(turn.row), self._holds.get(turn.answer)
            given = None if holds == Holds.NOTHING else self._given.get(turn.row, turn)
            its = kind.function, kind.callee, holds, given
            callee = session.destination(turn.row)
            if its != key or any(session.destination(one.row) == callee for one in current):
                if len(current) > 1:
                    yield current
                current, key = [], its
            current.append(turn)
        if len(current) > 1:
            yield current

    def steps(self, turns: Iterable[Turn]) -> dict[Succession, Counter[bool]]:
        """Returns how often the caller went on at once, and how often not, from one worker to the next."""
        found: dict[Succession, Counter[bool]] = defaultdict(Counter)
        for turn, after in pairwise(turns):
            found[self._step(turn, after)][turn.goes_on] += 1
        return found

    def steady(self, its: Round, steps: Mapping[Succession, Counter[bool]]) -> bool:
        """Returns whether the caller, after each call of a round, nearly always made the next one at once, in
        the other rounds, too. A caller that does not wait for answers does so only now and then."""
        counts = (steps[self._step(turn, after)] for turn, after in pairwise(its))
        return all(count[True] >= STEADY * count[False] for count in counts)

    def _step(self, turn: Turn, after: Turn) -> Succession:
        session, first, then = self._session, turn.row, after.row
        callees = session.destination(first), session.destination(then)
        return what_of(session, first), what_of(session, then), *callees

    def deciding(self, turns: Iterable[Turn]) -> frozenset[str]:
        """Functions whose answers may have decided what was called next."""
        held: dict[str, set[int]] = defaultdict(set)
        for turn in turns:
            if turn.answer in self._holds:
                held[what_of(self._session, turn.row)].add(self._holds[turn.answer])
        return frozenset(what for what, its in held.items() if len(its) > 1 or Holds.TRUTH in its)

    def independent(self, caller: WorkerKey, its: Round) -> bool:
        """Returns whether the calls of a round could go out at once: none is known to need the answer of
        another."""
        job, _ = caller
        used = set().union(*(self._tensors[turn.row] for turn in its))
        for turn, after in zip(its, [*its[1:], None], strict=True):
            holds = self._holds.get(turn.answer)
            if holds is None or turn.answer in self._brought or turn.answer in self._opaque:
                return False
            if self._tensors[turn.answer] & used or self._busy(job, turn):
                return False
            if after is not None:
                callee = self._session.destination(after.row)
                names = callee, self._ids.get((job, callee))
                if any(name is not None and mark_of(name) in self._marks[turn.answer] for name in names):
                    return False
        return True

    def _busy(self, job: int, turn: Turn) -> bool:
        """Returns whether the callee sent a request of its own between a call and its answer."""
        columns = self._session.messages
        times = self._sent.get((job, self._session.destination(turn.row)), ())
        at = bisect_left(times, columns.end_time_ns[turn.row])
        return at < len(times) and times[at] <= columns.time_ns[turn.answer]


def _sent(session: Session) -> dict[WorkerKey, list[int]]:
    """Returns when each worker sent requests of its program."""
    found: dict[WorkerKey, list[int]] = defaultdict(list)
    columns = session.messages
    for row in program_requests(session).tolist():
        pipe = columns.pipe[row]
        found[session.jobs[pipe], session.clients[pipe]].append(columns.time_ns[row])
    return {member: sorted(times) for member, times in found.items()}
