"""Who is called, as a person says it: `Head.forward`, where the wire says `_local_invoke`.

In: one request, for whom it calls as far as it says that itself (`callee_of`); then what is known of the
classes of RRefs (`name_of`). The first is small, so that whoever can't keep messages keeps that. Calls go
through an RRef by torch's proxies (torch/distributed/rpc/rref_proxy.py), by RemoteModule
(torch/distributed/nn/jit/templates/remote_module_template.py), or by a helper of the user's that is given a
method and an RRef, as `_call_method` in PyTorch's tutorials.
"""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.late_pattern import late
from rpcinspect.pickles import semantic
from rpcinspect.pickles.safe_names import HELPERS, MAKE_OPTIMIZERS
from rpcinspect.pickles.semantic import GETATTR
from rpcinspect.pickles.tree import Global, PickleCall, Value
from rpcinspect.rpc.command import ScriptCall, ScriptRemoteCall
from rpcinspect.rpc.questions import arguments_of, function_of, python_udf_of
from rpcinspect.rpc.record import RpcRecord


class Callee(Struct, frozen=True):
    """The function or object that a request calls, as far as the request itself names it."""

    what: str
    """A function or a class; `through` an RRef or with an `owner` the name of a method."""
    through: bool = False
    """The method is one of the object of an RRef, the first that the request brings."""
    owner: Global | None = None
    """The class that the request names with the method."""


class Name(Struct, frozen=True):
    """What somebody is called."""

    short: str
    """`Head.forward`; `app.build` for a function."""
    full: str
    """`app.Head.forward`: two classes may have one name."""
    method: str | None = None
    """Of a call through an RRef, or of a method: the method."""
    cls: str | None = None
    """The class that has it, where that is known."""


def callee_of(record: RpcRecord) -> Callee | None:
    """Whom a request calls; None if it calls nobody, or nobody who can be named."""
    command = record.rpc.command
    if isinstance(command, (ScriptCall, ScriptRemoteCall)):
        return _script(command)
    udf = python_udf_of(record)
    if udf is None:
        told = function_of(record)
        return None if told is None else Callee(told)
    if type(udf.func) is PickleCall:
        return _bound(udf.func)
    if type(udf.func) is not Global:
        return None
    first, second = _first_two(udf.args)
    if udf.func in PROXIES and type(second) is str:
        return Callee(second, _behind(first))
    if udf.func == REMOTE_FORWARD:
        return Callee("forward", _behind(first))
    if udf.func in (CREATE, CREATE_WITH_INTERFACE) and type(first) is Global:
        return Callee(str(first))
    return _helper(first, second) or _helper(second, first) or Callee(str(udf.func))


def passed_to(record: RpcRecord) -> tuple[Value, Value] | None:
    """What whoever is called gets, by place and by name: of a method behind one of torch's proxies its own
    arguments, without the RRef and what else the proxy needs; None as `arguments_of`.
    """
    given = arguments_of(record)
    if given is None:
        return None
    args, kwargs = semantic.untag(given[0]), given[1]
    if type(args) not in (tuple, list):
        return given
    rest = tuple(args)
    udf = python_udf_of(record)
    if udf is None:
        callee = callee_of(record)
        return (rest[_before_forward(rest) :] if callee is not None and callee.through else rest), kwargs
    first, second = _first_two(args)
    if udf.func in PROXIES and type(second) is str and len(rest) == 4:
        return rest[2], rest[3]
    if udf.func == REMOTE_FORWARD:
        return rest[_before_forward(rest) :], kwargs
    if udf.func in (CREATE, CREATE_WITH_INTERFACE) and type(first) is Global and len(rest) > 2:
        return rest[1], rest[2]
    helped = type(udf.func) is Global and (_helper(first, second) or _helper(second, first))
    return (rest[2:], kwargs) if helped else given


def _before_forward(args: tuple[Value, ...]) -> int:
    """How many arguments of `_remote_forward` come before those of the module: its RRef, the device, and from
    torch 1.9 on whether there is a device map."""
    return 3 if len(args) > 2 and type(args[2]) is bool else 2


def name_of(callee: Callee, made: Global | None) -> Name:
    """Returns the name to show; `made`: the class of the object behind the RRef, or the function that made
    it."""
    if not callee.through and callee.owner is None:
        return Name(callee.what, callee.what)
    owner = made
    if owner is None or (callee.owner is not None and not _like_class(owner)):
        owner = callee.owner
    if owner is None:
        return Name(callee.what, callee.what, callee.what)
    if owner is made and not _like_class(owner):
        return Name(f"{owner.name}().{callee.what}", f"{owner}().{callee.what}", callee.what)
    return Name(f"{owner.name}.{callee.what}", f"{owner}.{callee.what}", callee.what, str(owner))


def _script(command: ScriptCall | ScriptRemoteCall) -> Callee:
    """TorchScript: RemoteModule's own function of that name has the RRef first."""
    function = MANGLED.sub("", command.function)
    args: Value = semantic.untag(command.args)
    fork = semantic.rref_fork(args[0]) if type(args) in (tuple, list) and args else None
    if fork is not None and function.endswith(f".{REMOTE_FORWARD.name}"):
        return Callee("forward", True)
    return Callee(function)


def _first_two(args: Value) -> tuple[Value, Value]:
    given = [*args[:2]] if type(args) in (tuple, list) else []
    first, second = given + [None] * (2 - len(given))
    return first, second


def _behind(node: Value) -> bool:
    return semantic.rref_fork(node) is not None


def _bound(function: PickleCall) -> Callee | None:
    """A method of an object that travels with the call, or of a class."""
    if function.function != GETATTR or type(function.args) is not tuple or len(function.args) != 2:
        return None
    owner, method = function.args
    if type(owner) is PickleCall:
        owner = owner.args[0] if owner.function == RECONSTRUCTOR and owner.args else owner.function
    return Callee(method, owner=owner) if type(owner) is Global and type(method) is str else None


def _helper(method: Value, rref: Value) -> Callee | None:
    """Whom a helper calls that is given `Class.method` and an RRef."""
    fork = semantic.rref_fork(rref)
    if fork is None or type(method) is not Global:
        return None
    owner, _, name = method.name.rpartition(".")
    if not owner or _like_class(Global(owner, name)):
        return None  # a function or a class: what is done with it is the helper's own affair
    return Callee(name, True, Global(method.module, owner))


def maker_of(udf: semantic.PythonUdf | None) -> Global | None:
    """The class of the object that a call makes: its function, or the class that torch's helper is given."""
    if udf is None or type(udf.func) is not Global:
        return None
    if udf.func in (CREATE, CREATE_WITH_INTERFACE):
        first: Value = udf.args[0] if type(udf.args) is tuple and udf.args else None
        return first if type(first) is Global else None
    return None if udf.func in HELPERS and udf.func not in MAKE_OPTIMIZERS else udf.func


def _like_class(name: Global) -> bool:
    """Whether a name is written as classes are; only how it is shown depends on that."""
    return name.name.rpartition(".")[2].lstrip("_")[:1].isupper()


PROXIES = frozenset(
    Global("torch.distributed.rpc.rref_proxy", name)
    for name in ("_local_invoke", "_local_invoke_async_execution")
)
REMOTE_FORWARD = Global("_remote_module_non_scriptable", "_remote_forward")
RECONSTRUCTOR = Global("copyreg", "_reconstructor")
MANGLED = late(r"^__torch__\.|___torch_mangle_\d+\.")

_REMOTE_MODULE = "torch.distributed.nn.api.remote_module"
CREATE = Global(_REMOTE_MODULE, "_create_module")
CREATE_WITH_INTERFACE = Global(_REMOTE_MODULE, "_create_module_with_interface")
TYPE_OF = Global("torch.distributed.rpc.api", "_rref_typeof_on_owner")
MAKERS = frozenset(map(str, (CREATE_WITH_INTERFACE, *MAKE_OPTIMIZERS)))
"""Helpers of torch that make an object and answer with its RRef."""
