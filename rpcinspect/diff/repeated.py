"""Calls that one run makes once more than the other: they say what the call before or after them says.

In: a run, and which of its calls have a partner. Out: those without one that repeat one that has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from rpcinspect.diff.side import DiffSide
from rpcinspect.rpc.questions import GENERAL


def repeated(run: DiffSide, paired: set[int]) -> set[int]:
    """Calls without a partner whose neighbour in their lane has one and says the same."""
    found: set[int] = set()
    left = [
        call
        for call in run.calls.values()
        if call.index not in paired and call.kind in GENERAL and not call.control
    ]
    if not left:
        return found
    wanted = {run.signs[call.index] for call in left}
    lanes: dict[Hashable, list[int]] = defaultdict(list)
    for call in run.calls.values():
        if run.signs[call.index] in wanted:
            lanes[run.signs[call.index]].append(call.index)
    for lane in lanes.values():
        for order in (range(len(lane)), range(len(lane) - 1, -1, -1)):
            last: int | None = None  # the last one that has a partner, or repeats one
            for at in order:
                index = lane[at]
                if index in paired or index in found:
                    last = index
                elif last is not None and run.content(last) == run.content(index) and _near(run, last, index):
                    found.add(index)
                    last = index
                else:
                    last = None
    return found


def _near(run: DiffSide, one: int, other: int) -> bool:
    """Whether two calls are of one context, or of none."""
    return run.calls[one].context == run.calls[other].context
