"""Calls of a run → units: what is aligned as a whole before its calls are.

A unit is an autograd context with all its calls, which is an iteration in most programs; or, outside of
contexts, a call that a worker made of its own, with the calls that were made while serving it. A unit can lie
inside a call: a context that was opened by a function that another worker has called.
"""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct, field

from rpcinspect.diff.content import as_multiset
from rpcinspect.diff.side import DiffSide, Sign
from rpcinspect.rpc.questions import GENERAL, HOUSEKEEPING
from rpcinspect.run.exchanges import Call


class Unit(Struct, eq=False):
    """See the module's text."""

    job: int
    owner: str
    """Who made its first call."""
    parent: int | None
    """The call that it lies in; None: it is the owner's own."""
    calls: list[int] = field(default_factory=list)
    """Requests of code, in the order in which they began."""
    others: list[int] = field(default_factory=list)
    """Gradients and clean-ups."""

    def shape(self, run: DiffSide) -> Hashable:
        """Which calls it has, whatever they say and in whatever order."""
        return as_multiset([run.signs[index] for index in self.calls])

    def said(self, run: DiffSide) -> Hashable:
        """Which calls it has, and what their requests say."""
        return as_multiset(self.requests(run))

    def requests(self, run: DiffSide) -> list[Hashable]:
        """Each of its calls, and what that says."""
        return [(run.signs[index], run.content(index)) for index in self.calls]

    def begin(self, run: DiffSide) -> Hashable:
        """Its first call, and what that says."""
        first = self.first()
        return None if first is None else (run.signs[first], run.content(first))

    def kind(self, run: DiffSide) -> Sign | None:
        """What its first call is."""
        first = self.first()
        return None if first is None else run.signs[first]

    def first(self) -> int | None:
        """Its first call; None where only gradients or clean-ups were captured."""
        return self.calls[0] if self.calls else None


def units_of(run: DiffSide) -> list[Unit]:
    """The units of a run in the order in which they began. Agents' own calls and the housekeeping of RRefs
    are in none."""
    units: list[Unit] = []
    of_context: dict[tuple[int, int], Unit] = {}
    of_call: dict[int, Unit] = {}
    for call in run.calls.values():
        if call.control or call.kind in HOUSEKEEPING:
            continue
        unit = _unit(run, call, of_context, of_call)
        if unit is None:
            parent = run.parents.get(call.index)
            unit = Unit(call.job, run.signs[call.index].caller, parent if parent in of_call else None)
            units.append(unit)
            if call.context is not None:
                of_context[call.job, call.context] = unit
        if call.kind in GENERAL:
            unit.calls.append(call.index)
        else:
            unit.others.append(call.index)
        of_call[call.index] = unit
    return units


def _unit(
    run: DiffSide, call: Call, of_context: dict[tuple[int, int], Unit], of_call: dict[int, Unit]
) -> Unit | None:
    """The unit that a call belongs to, where that has begun before."""
    if call.context is not None:
        return of_context.get((call.job, call.context))
    parent = run.parents.get(call.index)
    return None if parent is None else of_call.get(parent)
