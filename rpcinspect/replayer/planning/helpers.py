"""torch's own helpers, the functions by which its Python code uses rpc: what each may be called with.

In: the arguments of a request whose function is one of `known.HELPERS`. Out: nothing, or what is refused. A
helper calls methods of what it is given, so it gets what torch gives it and nothing that only looks alike: an
RRef where torch sends an RRef, a class that is allowed, a method that the class of the RRef's object has.

Mirrors torch/distributed/rpc/{api,rref_proxy}.py, torch/distributed/nn/api/remote_module.py and
torch/distributed/optim/optimizer.py of torch 2.2 to 2.15. Values inside of arguments are judged by `judge`.

`rref_classes`: the exchanges of all jobs → of which class the object behind each RRef is, as far as the
capture can tell: what the call that makes it names, where nobody but its maker brings the RRef. What
`_rref_typeof_on_owner` answered counts for nothing: the live one may answer otherwise. An RRef that two
messages make, of whatever jobs, is known of neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias, TypeVar

from msgspec import Struct

from rpcinspect.pickles import semantic
from rpcinspect.pickles.judge import Judge
from rpcinspect.pickles.safe_names import LAYERS, MAKE_OPTIMIZERS, OPTIMIZERS, STEP_OPTIMIZERS, VALUES
from rpcinspect.pickles.semantic import is_fork
from rpcinspect.pickles.tree import SCALARS, Call, Dict, Global, Set, Value, children
from rpcinspect.pickles.verdicts import Named, NameRuling
from rpcinspect.rpc.callee import CREATE_WITH_INTERFACE, maker_of
from rpcinspect.rpc.questions import created, python_udf_of
from rpcinspect.run.exchanges import Exchange

One: TypeAlias = Callable[[Value], bool]
Methods: TypeAlias = Callable[[Global, str, bool], NameRuling]
"""(class, method, only by an explicit --allow) → whether it may be called."""

WRONG = "torch does not call it with such arguments"


class Form(Struct, frozen=True):
    """The parameters of a helper."""

    named: dict[str, One]
    """In order."""
    required: int
    rest: bool = False
    """Whether more may follow, by place and by name; they are judged as values."""


def judge_helper(
    judge: Judge, udf: semantic.PythonUdf, made: Mapping[Id, Made], methods: Methods, *, allowed: bool
) -> None:
    """Judge the arguments of a helper of torch. `allowed`: the user named the helper itself."""
    function: Global = udf.func
    values = _bound(FORMS[function.name], udf.args, udf.kwargs)
    if values is None:
        judge.refuse(str(function), WRONG)
    elif function.name in METHODS and not allowed:
        fork = semantic.rref_fork(udf.args[0])
        method = METHODS[function.name] or udf.args[1]
        known = UNKNOWN if fork is None else made.get(fork.rref_id, UNKNOWN)
        _method(judge, function, known, method, methods)
        if known.by in LAYERS and not is_data(udf.args, *(value for _, value in udf.kwargs.pairs)):
            judge.refuse(str(function), "a layer of torch would be given what is no data")


def _bound(form: Form, args: Value, kwargs: Value) -> dict[str, Value] | None:
    """The arguments by the names of their parameters; None where they are not what torch gives."""
    if type(args) not in (tuple, list) or type(kwargs) is not Dict:
        return None
    if len(args) < form.required or (len(args) > len(form.named) and not form.rest):
        return None
    found = dict(zip(form.named, args, strict=False))
    for name, value in kwargs.pairs:
        if type(name) is not str or name in found or (name not in form.named and not form.rest):
            return None
        found[name] = value
    layer, optimizer = found.get("module_cls"), found.get("optim_cls")
    is_layer = type(layer) is Global and layer in LAYERS
    is_optimizer = type(optimizer) is Global and optimizer in OPTIMIZERS
    if (is_layer or is_optimizer) and not is_data(args, *(v for _, v in kwargs.pairs)):
        return None
    # torch's fused kernels write as many elements as a tensor claims to have
    fused = len(args) > len(form.named) + 1 or found.get("fused") not in (None, False)
    if fused and is_optimizer:
        return None
    return found if all(form.named[name](found[name]) for name in form.named if name in found) else None


def _method(judge: Judge, function: Global, made: Made, method: str, methods: Methods) -> None:
    """A method that is called on the object behind an RRef: one of the class that it is known to be of."""
    if made.by in LAYERS and method in LAYER_METHODS:
        return
    if made.by in MAKE_OPTIMIZERS and method == "step":
        return
    if made.by is None:
        whole, standing = f"{function}.{method}", methods(function, method, True)
        reason = f"it would call {method} of an object whose class no message tells"
        if standing.allowed:
            judge.say(Named(whole, True))
        else:
            judge.refuse(whole, reason, standing.allow, dangerous=not standing.allow)
        return
    owner, standing = made.by, methods(made.by, method, False)
    if standing.allowed or standing.dangerous:
        judge.say(Named(f"{owner}.{method}", standing.allowed, standing.reason, "", standing.dangerous))
    else:
        dangerous = not standing.allow
        judge.refuse(f"{owner}.{method}", standing.reason, standing.allow, dangerous=dangerous)


def _rref(value: Value) -> bool:
    return is_fork(value)


def _rrefs(value: Value) -> bool:
    return type(value) in (list, tuple) and all(map(_rref, value))


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
        elif kind is not Call:
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


def _own_class(value: Value) -> bool:
    return type(value) is Global and (value in LAYERS or value not in VALUES)


def _optimizer(value: Value) -> bool:
    return type(value) is Global and (value in OPTIMIZERS or value not in VALUES)


def _device(value: Value) -> bool:
    return type(value) is str or semantic.device(value) is not None


def _is(*types: type) -> One:
    return lambda value: type(value) in types


_INT, _STR, _BOOL = _is(int), _is(str), _is(bool)
_ARGS, _KWARGS = _is(tuple, list), _is(Dict)
_STEP = Form({"local_optim_rref": _rref, "autograd_ctx_id": _INT}, 2)
_OPTIMIZER = Form({"optim_cls": _optimizer, "local_params_rref": _rrefs}, 2, rest=True)
_INVOKE = Form({"rref": _rref, "func_name": _STR, "args": _ARGS, "kwargs": _KWARGS}, 4)
_MODULE = {"module_cls": _own_class, "args": _ARGS, "kwargs": _KWARGS, "device": _device}

FORMS: dict[str, Form] = {
    "_create_module": Form(_MODULE, 4),
    "_create_module_with_interface": Form(
        {**_MODULE, "module_interface_cls": lambda value: value is None or _own_class(value)}, 5
    ),
    "_instantiate_template": Form(
        {"module_interface_cls": _own_class, "enable_moving_cpu_tensors_to_cuda": _BOOL}, 2
    ),
    "_local_invoke": _INVOKE,
    "_local_invoke_async_execution": _INVOKE,
    "_param_rrefs": Form({"module_rref": _rref, "recurse": _BOOL}, 2),
    "_remote_forward": Form({"module_rref": _rref, "device": _STR, "is_device_map_set": _BOOL}, 3, rest=True),
    "_rref_typeof_on_owner": Form({"rref": _rref, "blocking": _BOOL}, 1),
    "_rref_typeof_on_user": Form({"rref": _rref, "timeout": _is(int, float), "blocking": _BOOL}, 1),
    "get_gradients": Form({"context_id": _INT}, 1),
    "get_worker_info": Form({"worker_name": _is(str, type(None))}, 0),
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


def _only(found: Collection[T]) -> T | None:
    return next(iter(found)) if len(found) == 1 else None
