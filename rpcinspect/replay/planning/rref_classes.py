"""Of which class the object behind an RRef is, as far as the capture can tell.

In: the exchanges of all jobs. Out: RRef → what made it. Certain is only what is made by calling a class,
which the call names, and what nobody but its maker brings; all else, as what `_rref_typeof_on_owner`
answered, is what somebody said. An RRef that two messages make, of whatever jobs, is known of neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TypeVar

from msgspec import Struct

from rpcinspect.causes.calls import Call, created
from rpcinspect.rpc.pickles import semantic
from rpcinspect.rpc.pickles.known import HELPERS
from rpcinspect.rpc.pickles.tree import Global, Value
from rpcinspect.rpc.record import RpcRecord

Id = tuple[int, int]
T = TypeVar("T")


class Made(Struct, frozen=True):
    """What is known of the object behind an RRef."""

    by: Global | None = None
    """What was called to make it: a class, if it is one."""
    said: Global | None = None
    """What its owner said its type was."""


UNKNOWN = Made()


def rref_classes(calls: Iterable[Call]) -> Mapping[Id, Made]:
    """What each RRef of the capture was made by."""
    makers: dict[Id, set[tuple[Global | None, str]]] = {}
    said: dict[Id, set[Global | None]] = {}
    brought: dict[Id, set[str]] = {}
    """RRef → who else brought it: workers by requests; by an answer, whoever gave it."""
    for call in calls:
        udf = _udf(call.request)
        made = created(call.request)
        answered = None
        if made is not None:
            makers.setdefault(made[0], set()).add((_maker(udf), call.caller))
        for fork in call.request.facts.forks:
            brought.setdefault(fork.rref_id, set()).add(call.caller)
        if call.response is None:
            continue
        answer = call.response.facts.pickle
        function = udf.func if udf is not None else None
        if function == CREATE_WITH_INTERFACE or function in MAKE_OPTIMIZERS:
            answered = semantic.rref_fork(answer.root) if answer is not None else None
            if answered is not None:
                makers.setdefault(answered.rref_id, set()).add((_maker(udf), call.caller))
        for fork in call.response.facts.forks:
            if answered is None or fork.rref_id != answered.rref_id:
                brought.setdefault(fork.rref_id, set()).add("")
        if udf is not None and function in TYPEOF and type(udf.args) is tuple and udf.args:
            asked = semantic.rref_fork(udf.args[0])
            if asked is not None and answer is not None:
                root = answer.root
                said.setdefault(asked.rref_id, set()).add(root if type(root) is Global else None)
    found: dict[Id, Made] = {}
    for rref in makers.keys() | said.keys():
        told = said.get(rref, set())
        by, caller = _only(makers.get(rref, set())) or (None, "")
        if by is not None and not brought.get(rref, set()) <= {caller}:
            told, by = told | {by}, None  # the live one may be what another message brought
        found[rref] = Made(by, _only(told))
    return found


def _maker(udf: semantic.PythonUdf | None) -> Global | None:
    """The class of what a call makes: its function, or the class that torch's helper is given."""
    if udf is None or type(udf.func) is not Global:
        return None
    if udf.func in (CREATE, CREATE_WITH_INTERFACE):
        first: Value = udf.args[0] if type(udf.args) is tuple and udf.args else None
        return first if type(first) is Global else None
    return None if udf.func in HELPERS and udf.func not in MAKE_OPTIMIZERS else udf.func


def _udf(record: RpcRecord) -> semantic.PythonUdf | None:
    pickle = record.facts.pickle
    return None if pickle is None or pickle.error is not None else semantic.python_udf(pickle.root)


def _only(found: Set[T]) -> T | None:
    return next(iter(found)) if len(found) == 1 else None


_REMOTE_MODULE = "torch.distributed.nn.api.remote_module"
CREATE = Global(_REMOTE_MODULE, "_create_module")
CREATE_WITH_INTERFACE = Global(_REMOTE_MODULE, "_create_module_with_interface")
MAKE_OPTIMIZERS = tuple(
    Global("torch.distributed.optim.optimizer", name)
    for name in ("_new_local_optimizer", "_new_script_local_optimizer")
)
TYPEOF = tuple(
    Global("torch.distributed.rpc.api", name) for name in ("_rref_typeof_on_owner", "_rref_typeof_on_user")
)
