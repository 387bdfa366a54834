"""Of which class the object behind an RRef is, as far as the capture can tell.

In: the exchanges of all jobs. Out: RRef → what made it: what the call names, where nobody but its maker
brings the RRef. What `_rref_typeof_on_owner` answered counts for nothing: the live one may answer otherwise.
An RRef that two messages make, of whatever jobs, is known of neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TypeVar

from msgspec import Struct

from rpcinspect.rpc.callee import CREATE_WITH_INTERFACE, MAKE_OPTIMIZERS, maker_of, python_udf_of
from rpcinspect.rpc.pickles import semantic
from rpcinspect.rpc.pickles.tree import Global
from rpcinspect.rpc.questions import created
from rpcinspect.run.exchanges import Exchange

Id = tuple[int, int]
T = TypeVar("T")


class Made(Struct, frozen=True):
    """What is known of the object behind an RRef."""

    by: Global | None = None
    """What was called to make it: a class, if it is one."""


UNKNOWN = Made()


def rref_classes(calls: Iterable[Exchange]) -> Mapping[Id, Made]:
    """What each RRef of the capture was made by."""
    makers: dict[Id, set[tuple[Global | None, str]]] = {}
    brought: dict[Id, set[str]] = {}
    """RRef → who else brought it: workers by requests; by an answer, whoever gave it."""
    for call in calls:
        udf = python_udf_of(call.request)
        made = created(call.request)
        answered = None
        if made is not None:
            makers.setdefault(made[0], set()).add((maker_of(udf), call.caller))
        for fork in call.request.facts.forks:
            brought.setdefault(fork.rref_id, set()).add(call.caller)
        if call.response is None:
            continue
        answer = call.response.facts.pickle
        function = udf.func if udf is not None else None
        if function == CREATE_WITH_INTERFACE or function in MAKE_OPTIMIZERS:
            answered = semantic.rref_fork(answer.root) if answer is not None else None
            if answered is not None:
                makers.setdefault(answered.rref_id, set()).add((maker_of(udf), call.caller))
        for fork in call.response.facts.forks:
            if answered is None or fork.rref_id != answered.rref_id:
                brought.setdefault(fork.rref_id, set()).add("")
    found: dict[Id, Made] = {}
    for rref, its in makers.items():
        by, caller = _only(its) or (None, "")
        if not brought.get(rref, set()) <= {caller}:
            by = None  # the live one may be what another message brought
        found[rref] = Made(by)
    return found


def _only(found: Set[T]) -> T | None:
    return next(iter(found)) if len(found) == 1 else None
