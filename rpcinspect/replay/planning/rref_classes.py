"""Of which class the object behind an RRef is, as far as the capture can tell.

In: the exchanges of all jobs. Out: RRef → what made it. Certain is only what is made by calling a class,
which the call names; what `_rref_typeof_on_owner` answered is what somebody said. An RRef that two messages
make, of whatever jobs, is known of neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from rpcinspect.causes.calls import Call, created
from rpcinspect.rpc.pickles import semantic
from rpcinspect.rpc.pickles.tree import Global, Value
from rpcinspect.rpc.record import RpcRecord

Id = tuple[int, int]


class Made(Struct, frozen=True):
    """What is known of the object behind an RRef."""

    by: Global | None = None
    """What was called to make it: a class, if it is one."""
    said: Global | None = None
    """What its owner said its type was."""


UNKNOWN = Made()


def rref_classes(calls: Iterable[Call]) -> Mapping[Id, Made]:
    """What each RRef of the capture was made by."""
    makers: dict[Id, set[Global | None]] = {}
    said: dict[Id, set[Global | None]] = {}
    for call in calls:  # an optimizer is made by torch's helper, which has a class of its own for it
        udf = _udf(call.request)
        made = created(call.request)
        if made is not None:
            makers.setdefault(made[0], set()).add(_maker(udf))
        if udf is None or call.response is None or type(udf.func) is not Global:
            continue
        if udf.func == CREATE_WITH_INTERFACE or udf.func in MAKE_OPTIMIZERS:
            for fork in call.response.facts.forks:
                makers.setdefault(fork.rref_id, set()).add(_maker(udf))
        elif udf.func in TYPEOF and type(udf.args) is tuple and udf.args:
            asked = semantic.rref_fork(udf.args[0])
            answer = call.response.facts.pickle
            if asked is not None and answer is not None:
                root = answer.root
                said.setdefault(asked.rref_id, set()).add(root if type(root) is Global else None)
    nothing: set[Global | None] = set()
    return {
        rref: Made(_only(makers.get(rref, nothing)), _only(said.get(rref, nothing)))
        for rref in makers.keys() | said
    }


def _maker(udf: semantic.PythonUdf | None) -> Global | None:
    """The class of what a call makes: its function, or the class that torch's helper is given."""
    if udf is None or type(udf.func) is not Global:
        return None
    if udf.func in (CREATE, CREATE_WITH_INTERFACE):
        first: Value = udf.args[0] if type(udf.args) is tuple and udf.args else None
        return first if type(first) is Global else None
    return udf.func


def _udf(record: RpcRecord) -> semantic.PythonUdf | None:
    pickle = record.facts.pickle
    return None if pickle is None or pickle.error is not None else semantic.python_udf(pickle.root)


def _only(found: set[Global | None]) -> Global | None:
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
