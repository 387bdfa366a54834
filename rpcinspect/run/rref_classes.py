"""Of which class the object behind an RRef is, as far as the capture can tell.

In: messages with who sent them. Out: two answers. `made` is for those who run something: what made an RRef,
where nobody but its maker brings it; what `_rref_typeof_on_owner` answered counts for nothing there, since a
live worker may answer otherwise. `class_of` is for names: what the owner said of the object, else what made
it. An RRef that two messages make is known of neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from rpcinspect.rpc.pickles import semantic
from rpcinspect.rpc.pickles.known import HELPERS
from rpcinspect.rpc.pickles.tree import Global, Value
from rpcinspect.rpc.questions import created
from rpcinspect.rpc.record import RpcRecord

if TYPE_CHECKING:
    from rpcinspect.run.exchanges import Call

Id = tuple[int, int]
T = TypeVar("T")


class Made(Struct, frozen=True):
    """What is known of the object behind an RRef."""

    by: Global | None = None
    """What was called to make it: a class, if it is one."""


UNKNOWN = Made()


class Asked(Struct, frozen=True):
    """A request whose answer says something of an RRef's object; all that must be kept of it until then."""

    caller: str
    maker: Global | None = None
    """It makes an object, and its answer has the RRef."""
    type_of: Id | None = None
    """It asks for the class of this one's object."""


class RRefClasses:
    """Collects; ids are unique in a job only, so that names want one of these for each job."""

    def __init__(self) -> None:
        self._makers: dict[Id, set[tuple[Global | None, str]]] = defaultdict(set)
        self._types: dict[Id, set[Global | None]] = defaultdict(set)
        """RRef → what its owner answered."""
        self._brought: dict[Id, set[str]] = defaultdict(set)
        """RRef → who else brought it: workers by requests; by an answer, whoever gave it."""

    def request(self, caller: str, record: RpcRecord) -> Asked | None:
        """Notes a request; what it returns is to be given to `answer`, None does not matter."""
        made = created(record)
        if made is None and not record.facts.forks and record.facts.function not in ASKING:
            return None
        udf = python_udf_of(record)
        if made is not None:
            self._makers[made[0]].add((_maker(udf), caller))
        for fork in record.facts.forks:
            self._brought[fork.rref_id].add(caller)
        function = None if udf is None else udf.func
        if function == CREATE_WITH_INTERFACE or function in MAKE_OPTIMIZERS:
            return Asked(caller, maker=_maker(udf))
        if function == TYPE_OF and udf is not None and type(udf.args) is tuple and udf.args:
            asked = semantic.rref_fork(udf.args[0])
            return Asked(caller, type_of=None if asked is None else asked.rref_id)
        return None

    def answer(self, asked: Asked | None, record: RpcRecord) -> None:
        """Notes the answer to a request."""
        pickle, answered = record.facts.pickle, None
        if asked is not None and asked.type_of is None:
            answered = semantic.rref_fork(pickle.root) if pickle is not None else None
            if answered is not None:
                self._makers[answered.rref_id].add((asked.maker, asked.caller))
        if asked is not None and asked.type_of is not None and pickle is not None:
            self._types[asked.type_of].add(pickle.root if type(pickle.root) is Global else None)
        for fork in record.facts.forks:
            if answered is None or fork.rref_id != answered.rref_id:
                self._brought[fork.rref_id].add("")

    def made(self) -> Mapping[Id, Made]:
        """What each RRef was made by, where no other message can bring another one by its name."""
        found: dict[Id, Made] = {}
        for rref, its in self._makers.items():
            by, caller = _only(its) or (None, "")
            if not self._brought.get(rref, set()) <= {caller}:
                by = None  # the live one may be what another message brought
            found[rref] = Made(by)
        return found

    def class_of(self, rref: Id) -> Global | None:
        """The class of an RRef's object, or the function that made it."""
        told = _only(self._types.get(rref, set()))
        if told is not None:
            return told
        return _only({by for by, _ in self._makers.get(rref, ())})


def rref_classes(calls: Iterable[Call]) -> Mapping[Id, Made]:
    """What each RRef of the capture was made by; one that two jobs have is known of neither."""
    classes = RRefClasses()
    for call in calls:
        asked = classes.request(call.caller, call.request)
        if call.response is not None:
            classes.answer(asked, call.response)
    return classes.made()


def _maker(udf: semantic.PythonUdf | None) -> Global | None:
    """The class of what a call makes: its function, or the class that torch's helper is given."""
    if udf is None or type(udf.func) is not Global:
        return None
    if udf.func in (CREATE, CREATE_WITH_INTERFACE):
        first: Value = udf.args[0] if type(udf.args) is tuple and udf.args else None
        return first if type(first) is Global else None
    return None if udf.func in HELPERS and udf.func not in MAKE_OPTIMIZERS else udf.func


def python_udf_of(record: RpcRecord) -> semantic.PythonUdf | None:
    """The call in a request's pickle; None where it could not be read whole."""
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
TYPE_OF = Global("torch.distributed.rpc.api", "_rref_typeof_on_owner")
ASKING = frozenset(map(str, (CREATE_WITH_INTERFACE, TYPE_OF, *MAKE_OPTIMIZERS)))
