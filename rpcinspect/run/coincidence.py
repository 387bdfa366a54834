"""What is no coincidence any more: the same thing seen so often that chance does not explain it.

In: one worker's requests and what each may have been sent for. Out: calls that the worker's own program has
not sent, and calls whose arguments tell which request they were sent for. Both are rules that hold in every
single case of the run, or not at all: one exception, and nothing is told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from rpcinspect.run.requests import Requests, Worker
from rpcinspect.session.provenance import distinctive

if TYPE_CHECKING:
    from rpcinspect.run.evidence import Case

CHANCE = 1e-4
"""What is less likely than that is no coincidence."""
GAP_TIMES = 2
"""Of a pause between busy times so many times as much counts as the busy time before it took: a pause may be
long for all of the job."""
LEAST_MATCHES = 5
LEAST_VALUES = 4
"""So many calls, and values, must have told their requests before it is a rule that they do."""

Sign: TypeAlias = tuple[str, int, str | None]
"""Callee, type and function of a call."""


def sign_of(requests: Requests, row: int) -> Sign:
    """What a call is, whatever it says."""
    kind = requests.kind(row)
    return requests.callee(row), kind.type, kind.function


def never_by_chance(requests: Requests, worker: Worker, cases: Mapping[int, Case]) -> Iterator[Sign]:
    """Calls that the worker only sends while it serves something, in so many separate busy times that its own
    program would have to have met them all by chance.
    """
    busy = _busy(requests, worker)
    if not busy:
        return
    working = sum(end - begin for begin, end in busy)
    pauses = sum(
        min(later[0] - earlier[1], GAP_TIMES * (earlier[1] - earlier[0])) for earlier, later in pairwise(busy)
    )
    share = working / max(working + pauses, 1)
    times: dict[Sign, set[int]] = defaultdict(set)
    begins = [begin for begin, _ in busy]
    idle: set[Sign] = set()
    for row, case in cases.items():
        sign = sign_of(requests, row)
        if case.rows:
            times[sign].add(_place(begins, requests.begin[row]))
        else:
            idle.add(sign)
    for sign, its in times.items():
        if sign not in idle and share ** len(its) < CHANCE:
            yield sign


def _busy(requests: Requests, worker: Worker) -> list[tuple[int, int]]:
    """The times in which the worker had something open, joined where they overlap."""
    spans = sorted(
        (requests.arrived[row], requests.answered(row)) for row in worker.received if requests.runs_code(row)
    )
    found: list[tuple[int, int]] = []
    for begin, end in spans:
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def _place(begins: Sequence[int], time_ns: int) -> int:
    return bisect_right(begins, time_ns)


def matched(
    requests: Requests, cases: Mapping[int, Case], values: Mapping[int, frozenset[int]]
) -> dict[int, int]:
    """Call → the one open request that has a value of its arguments: where it is one that hardly comes twice,
    and where all calls of the kind have a value of one of the open requests, and many of one only.
    """
    found: dict[int, int] = {}
    signs: dict[Sign, list[Case]] = defaultdict(list)
    for case in cases.values():
        signs[sign_of(requests, case.row)].append(case)
    for its in signs.values():
        if all(case.certain for case in its):
            continue
        told = {case.row: _holders(case, values) for case in its}
        for case in its:
            rare = {rows[0] for mark, rows in told[case.row].items() if len(rows) == 1 and distinctive(mark)}
            if len(rare) == 1 and not case.certain:
                found[case.row] = rare.pop()
        if all(told[case.row] for case in its):
            found |= _by_rule(its, told)
    return found


def _by_rule(cases: Sequence[Case], told: Mapping[int, Mapping[int, Sequence[int]]]) -> dict[int, int]:
    found: dict[int, int] = {}
    marks: set[int] = set()
    for case in cases:
        alone = {rows[0]: mark for mark, rows in told[case.row].items() if len(rows) == 1}
        if len(alone) == 1:
            ((row, mark),) = alone.items()
            found[case.row] = row
            marks.add(mark)
        elif len(alone) > 1:
            return {}
    wanted = {case.row for case in cases if not case.certain}
    if len(found) < LEAST_MATCHES or len(marks) < LEAST_VALUES:
        return {}
    return {row: parent for row, parent in found.items() if row in wanted}


def _holders(case: Case, values: Mapping[int, frozenset[int]]) -> dict[int, list[int]]:
    """Value of a call → the requests that it may have been sent for which have it."""
    own = values.get(case.row, frozenset())
    held = {mark: [row for row in case.rows if mark in values.get(row, ())] for mark in own}
    return {mark: rows for mark, rows in held.items() if rows}
