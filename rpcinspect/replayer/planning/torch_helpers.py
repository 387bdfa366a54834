"""torch's own helpers, the functions by which its Python code uses rpc: what each may be called with.

In: the arguments of a request whose function is one of `safe_names.HELPERS`. Out: nothing, or what is
refused. A helper calls methods of what it is given, so it gets what torch gives it and nothing that only
looks alike: an RRef where torch sends an RRef, a class that is allowed, a method that the class of the RRef's
object has.

Mirrors torch/distributed/rpc/{api,rref_proxy}.py, torch/distributed/nn/api/remote_module.py and
torch/distributed/optim/optimizer.py of torch 2.2 to 2.15. Values inside of arguments are judged by `judge`.

`rref_classes`: the exchanges of all jobs → of which class the object behind each RRef is, as far as the
capture can tell: what the call that makes it names, where nobody but its maker brings the RRef. What
`_rref_typeof_on_owner` answered counts for nothing: the live one may answer otherwise. Nothing is known of an
RRef that two messages make, of whatever jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from rpcinspect.pickles import semantic
from rpcinspect.pickles.judge import Judge
from rpcinspect.pickles.safe_names import LAYERS, MAKE_OPTIMIZERS, OPTIMIZERS, STEP_OPTIMIZERS, VALUES
from rpcinspect.pickles.semantic import is_fork
from rpcinspect.pickles.tree import SCALARS, Dict, Global, PickleCall, Set, Value, children
from rpcinspect.pickles.verdicts import Named, NameRuling
from rpcinspect.replayer.planning.operators import of_type
from rpcinspect.rpc.callee import CREATE_WITH_INTERFACE, maker_of
from rpcinspect.rpc.questions import created, python_udf_of
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.provenance import Id

One: TypeAlias = Callable[[Value], bool]
Methods: TypeAlias = Callable[[Global, str, bool], NameRuling]
"""(class, method, only by an explicit --allow) → whether it may be called."""

WRONG = "torch does not call it with such arguments"


class Signature(Struct, frozen=True):
    """The parameters of a helper."""

    named: dict[str, One]
    """In order."""
    required: int
    rest: bool = False
    """Whether more may follow, by place and by name; they are judged as values."""


def judge_helper(
    judge: Judge, udf: semantic.PythonUdf, made: Mapping[Id, Global], methods: Methods, *, allowed: bool
) -> None:
    """Judges the arguments of a helper of torch. `allowed`: the user named the helper itself."""
    function: Global = udf.func
    values = _bound(SIGNATURES[function.name], udf.args, udf.kwargs)
    if values is None:
        judge.refuse(str(function), WRONG)
    elif function.name in METHODS and not allowed:
        fork = semantic.rref_fork(udf.args[0])
        method = METHODS[function.name] or udf.args[1]
        maker = None if fork is None else made.get(fork.rref_id)
        _method(judge, function, maker, method, methods)
        if maker in LAYERS and not is_data(udf.args, *(value for _, value in udf.kwargs.pairs)):
            judge.refuse(str(function), "a layer of torch would be given something other than data")


def _bound(signature: Signature, args: Value, kwargs: Value) -> dict[str, Value] | None:
    """The arguments by the names of their parameters; None where they are not what torch gives."""
    if type(args) not in (tuple, list) or type(kwargs) is not Dict:
        return None
    if len(args) < signature.required or (len(args) > len(signature.named) and not signature.rest):
        return None
    found = dict(zip(signature.named, args, strict=False))
    for name, value in kwargs.pairs:
        if type(name) is not str or name in found or (name not in signature.named and not signature.rest):
            return None
        found[name] = value
    layer, optimizer = found.get("module_cls"), found.get("optim_cls")
    is_layer = type(layer) is Global and layer in LAYERS
    is_optimizer = type(optimizer) is Global and optimizer in OPTIMIZERS
    if (is_layer or is_optimizer) and not is_data(args, *(v for _, v in kwargs.pairs)):
        return None
    # torch's fused kernels write as many elements as a tensor claims to have
    fused = len(args) > len(signature.named) + 1 or found.get("fused") not in (None, False)
    if fused and is_optimizer:
        return None
    fits = all(signature.named[name](found[name]) for name in signature.named if name in found)
    return found if fits else None


def _method(judge: Judge, function: Global, maker: Global | None, method: str, methods: Methods) -> None:
    """Judges a method that is called on the object behind an RRef; `maker` is what made that, if known."""
    if maker in LAYERS and method in LAYER_METHODS:
        return
    if maker in MAKE_OPTIMIZERS and method == "step":
        return
    standing = methods(maker or function, method, maker is None)
    reason, allow = standing.reason, "" if standing.dangerous else standing.allow
    if maker is None:
        reason = f"it would call {method} of an object whose class no message names"
        allow = standing.allow
    name = f"{maker or function}.{method}"
    if standing.allowed:
        judge.say(Named(name, True))
    else:
        judge.refuse(name, reason, allow, dangerous=not allow)


def _rrefs(value: Value) -> bool:
    return type(value) in (list, tuple) and all(map(is_fork, value))


def is_data(*values: Value) -> bool:
    """Whether values are numbers, texts, tensors, RRefs and containers of these: torch's code calls none."""
    seen, stack = set[int](), list(values)
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind in SCALARS or id(node) in seen:
            continue
        seen.add(id(node))
        if kind is tuple or kind is list:
            stack += node
        elif kind is Dict or kind is Set:
            stack += children(node)
        elif kind is Global:
            if node not in _NAMES:
                return False
        elif kind is not PickleCall:
            return False
        elif not is_fork(node) and semantic.tensor_index(node) is None:
            if type(node.function) is not Global or node.function not in _DATA:
                return False
            stack += list(children(node))[1:]
    return True


_NAMES = (
    LAYERS
    | OPTIMIZERS
    | frozenset(name for name in VALUES if name.module == "torch") - {Global("torch", "Tensor")}
)
"""What layers and optimizers take by name: dtypes, layouts, other classes of them."""
_DATA = frozenset(
    {
        Global("builtins", "complex"),
        Global("builtins", "set"),
        Global("collections", "OrderedDict"),
        Global("torch", "Size"),
        Global("torch", "device"),
        Global("torch._utils", "_rebuild_parameter"),
        Global("torch.serialization", "_get_layout"),
    }
)
"""What a pickle calls for data that layers and optimizers take."""


def _class_or(ours: frozenset[Global]) -> One:
    """One of these classes of torch, or of somebody's own."""
    return lambda value: type(value) is Global and (value in ours or value not in VALUES)


def _device(value: Value) -> bool:
    return type(value) is str or semantic.device(value) is not None


_MODULE_CLASS, _OPTIMIZER_CLASS = _class_or(LAYERS), _class_or(OPTIMIZERS)
_INT, _STR, _BOOL = of_type(int), of_type(str), of_type(bool)
_ARGS, _KWARGS = of_type(tuple, list), of_type(Dict)
_STEP = Signature({"local_optim_rref": is_fork, "autograd_ctx_id": _INT}, 2)
_OPTIMIZER = Signature({"optim_cls": _OPTIMIZER_CLASS, "local_params_rref": _rrefs}, 2, rest=True)
_INVOKE = Signature({"rref": is_fork, "func_name": _STR, "args": _ARGS, "kwargs": _KWARGS}, 4)
_MODULE = {"module_cls": _MODULE_CLASS, "args": _ARGS, "kwargs": _KWARGS, "device": _device}

SIGNATURES: dict[str, Signature] = {
    "_create_module": Signature(_MODULE, 4),
    "_create_module_with_interface": Signature(
        {**_MODULE, "module_interface_cls": lambda value: value is None or _MODULE_CLASS(value)}, 5
    ),
    "_instantiate_template": Signature(
        {"module_interface_cls": _MODULE_CLASS, "enable_moving_cpu_tensors_to_cuda": _BOOL}, 2
    ),
    "_local_invoke": _INVOKE,
    "_local_invoke_async_execution": _INVOKE,
    "_param_rrefs": Signature({"module_rref": is_fork, "recurse": _BOOL}, 2),
    "_remote_forward": Signature(
        {"module_rref": is_fork, "device": _STR, "is_device_map_set": _BOOL}, 3, rest=True
    ),
    "_rref_typeof_on_owner": Signature({"rref": is_fork, "blocking": _BOOL}, 1),
    "_rref_typeof_on_user": Signature(
        {"rref": is_fork, "timeout": of_type(int, float), "blocking": _BOOL}, 1
    ),
    "get_gradients": Signature({"context_id": _INT}, 1),
    "get_worker_info": Signature({"worker_name": of_type(str, type(None))}, 0),
    **{one.name: _OPTIMIZER for one in MAKE_OPTIMIZERS},
    **{one.name: _STEP for one in STEP_OPTIMIZERS},
}
"""By the helper's name; no two of them have the same."""

METHODS: dict[str, str] = {
    "_local_invoke": "",
    "_local_invoke_async_execution": "",
    "_param_rrefs": "parameters",
    "_remote_forward": "forward",
    **{one.name: "step" for one in STEP_OPTIMIZERS},
}
"""Helpers that call a method of the object behind their first argument: which; empty: their second says
it.
"""

OF_FILES = frozenset(
    {"chmod", "hardlink_to", "link_to", "mkdir", "open", "read_bytes", "read_text", "rename", "replace"}
    | {"rmdir", "symlink_to", "touch", "unlink", "write", "write_bytes", "write_text", "tofile", "dump"}
)
"""Methods of paths and arrays that reach files: of an object of unknown class no line offers them."""

LAYER_METHODS = frozenset({"forward", "train", "eval", "parameters", "zero_grad", "extra_repr"})
"""Methods of torch's own layers that run nothing which their arguments choose."""


def rref_classes(calls: Iterable[Exchange]) -> dict[Id, Global]:
    """Returns RRef → the callable that made its object, a class if it is one; RRefs whose maker the capture
    lacks are left out."""
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
    found: dict[Id, Global] = {}
    for rref, ((by, caller), *others) in makers.items():
        # otherwise the live one may be what another message made or brought
        if by is not None and not others and brought.get(rref, set()) <= {caller}:
            found[rref] = by
    return found
