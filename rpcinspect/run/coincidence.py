"""What is no coincidence any more: arguments that tell again and again which request a call was sent for.

In: one worker's requests and what each call may have been sent for. Out: calls whose values tell that. It is
a rule of a function that calls another, and holds in every single case of the run, or not at all: one
exception, and nothing is told. It can't know of a program that acts in lock step with what it serves, with
the same values, nor of functions that send each other's values around.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rpcinspect.run.requests import Case, Requests, Worker

LEAST_MATCHES = 5
LEAST_VALUES = 4
"""So many calls, and values, must have told their requests before it is a rule that they do."""

Sign: TypeAlias = tuple[int, str | None]
"""Type and function of a call."""


def sign_of(requests: Requests, row: int) -> Sign:
    """What a call is, whatever it says."""
    kind = requests.kind(row)
    return kind.type, kind.function


def matched(
    requests: Requests, worker: Worker, cases: Mapping[int, Case], values: Mapping[int, frozenset[int]]
) -> dict[int, int]:
    """Call → the one open request that has a value of its arguments, where all calls of the kind have a value
    of an open request, and many of one only.
    """
    found: dict[int, int] = {}
    signs: dict[Sign, list[Case]] = defaultdict(list)
    for case in cases.values():
        signs[sign_of(requests, case.row)].append(case)
    served: dict[str | None, list[int]] = defaultdict(list)
    for row in worker.received:
        served[requests.kind(row).function].append(row)
    for its in signs.values():
        if any(case.rows and not case.certain for case in its):
            rule = _rule(its, values)
            if all(requests.waits_for(parent, row) for row, parent in rule.items()):
                found |= _of_one_function(requests, served, its, rule)
    return found


def _rule(cases: Sequence[Case], values: Mapping[int, frozenset[int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    marks: set[int] = set()
    for case in cases:
        held = _holders(case, values)
        if not held:
            return {}
        alone = {rows[0]: mark for mark, rows in held.items() if len(rows) == 1}
        if len(alone) == 1:
            ((row, mark),) = alone.items()
            found[case.row] = row
            marks.add(mark)
        elif alone or len(held) < len(values[case.row]):
            return {}  # several are told, or none where there is something that none of them has
    enough = len(found) >= LEAST_MATCHES and len(marks) >= LEAST_VALUES
    return found if enough else {}


def _of_one_function(
    requests: Requests,
    served: Mapping[str | None, Sequence[int]],
    cases: Sequence[Case],
    rule: Mapping[int, int],
) -> dict[int, int]:
    """The same without what is certain already, if one function made all of these calls, and made one
    whenever it was called."""
    functions = {requests.kind(parent).function for parent in rule.values()}
    if len(functions) != 1:
        return {}
    callers = len(set(rule.values())) + len(cases) - len(rule)
    if callers < len(served[functions.pop()]):
        return {}
    wanted = {case.row for case in cases if not case.certain and not case.unseen}
    return {row: parent for row, parent in rule.items() if row in wanted}


def _holders(case: Case, values: Mapping[int, frozenset[int]]) -> dict[int, list[int]]:
    """Value of a call → the requests that it may have been sent for which have it."""
    own = values.get(case.row, frozenset())
    held = {mark: [row for row in case.rows if mark in values.get(row, ())] for mark in own}
    return {mark: rows for mark, rows in held.items() if rows}
