"""What is not the user's own and still leaves the code of the user's files the code that runs: data, with
reasons.

`sources` judges names of the user's files. Where a file uses what it does not define (a decorator, a base
class, a wrapper), the name counts as the file's own only if what it uses stands here, by its full name. Each
list is closed: extend it by what runs nothing but the decorated function, or methods of the class, whatever
the arguments of a call are.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from rpcinspect.pickles.safe_names import words_of


def _of(modules: str, names: str) -> frozenset[str]:
    """Full names, of modules that have the same names."""
    return frozenset(f"{module}.{name}" for module in modules.split() for name in names.split())


_TYPING = "typing typing_extensions"
_GRAD_MODES = _of("torch torch.autograd torch.autograd.grad_mode", "no_grad enable_grad inference_mode")

WRAPPERS = (
    _of("builtins", "staticmethod classmethod")
    | _of("functools", "lru_cache cache")
    | _of("contextlib", "contextmanager asynccontextmanager")
    | _of(_TYPING, "overload final no_type_check override")
    | _GRAD_MODES
    | {"abc.abstractmethod", "torch.distributed.rpc.functions.async_execution"}
    | {"torch.autograd.function.once_differentiable", "torch.compile"}
    | _of("torch.amp torch.cuda.amp", "custom_fwd custom_bwd")
    | _of("torch.jit", "script script_method script_if_tracing export ignore unused")
)
"""Decorators without arguments, and functions that are called like one (`step = torch.jit.script(_step)`):
what they give runs the function that they are given, with the arguments of the call, and nothing else of
anybody's choice. `singledispatch` is none of them (it calls what was registered), and `property` and
`cached_property` are none: getting the method by its name runs it, and what it returns would be called."""

WRAPPER_MAKERS = (
    _of("functools", "lru_cache wraps")
    | _GRAD_MODES
    | _of("torch torch.autograd torch.autograd.grad_mode", "set_grad_enabled")
    | _of("typing_extensions warnings", "deprecated")
    | _of("torch.profiler torch.autograd.profiler", "record_function")
    | {"torch.autocast", "torch.compile", "torch.jit.ignore"}
    | _of("torch.amp torch.cuda.amp", "autocast custom_fwd custom_bwd")
)
"""The same for decorators with arguments: `@torch.no_grad()`."""

PARTIAL = frozenset({"functools.partial"})
"""What it gives calls its first argument. It is no decorator: `@partial(f)` is what `f` returns."""

CLASS_WRAPPERS = (
    {"enum.unique", "functools.total_ordering", "torch.jit.script", "torch.jit.interface"}
    | {"dataclasses.dataclass", "typing_extensions.deprecated"}
    | _of(_TYPING, "final runtime_checkable dataclass_transform")
)
"""Decorators that give the class back, or one made of the same body: `dataclass` adds methods that set
attributes and compare them."""

METACLASSES = words_of("builtins.type abc.ABCMeta enum.EnumMeta enum.EnumType")
"""They make a class of its body, and an object by its `__new__` and `__init__` (enumerations look it up)."""

CONSTANTS = (
    _of("builtins", "object bool int float complex str bytes bytearray list tuple dict set frozenset range")
    | _of("enum", "auto")
    | _of(_TYPING, "TypeVar ParamSpec TypeVarTuple NewType")
)
"""What a call of them gives runs nothing when it is called, and is no class whose objects a pickle makes."""

CLASS_MAKERS: dict[str, str] = {
    "collections.namedtuple": "collections.namedtuple",
    "typing.NamedTuple": "typing.NamedTuple",
    "typing.TypedDict": "typing.TypedDict",
    "typing_extensions.NamedTuple": "typing.NamedTuple",
    "typing_extensions.TypedDict": "typing.TypedDict",
    **{f"enum.{name}": f"enum.{name}" for name in ("Enum", "IntEnum", "Flag", "IntFlag", "StrEnum")},
}
"""A call of them with literals makes a class: `Color = Enum("Color", "RED GREEN")` → the base that it is
judged by."""


class Base(Struct, frozen=True):
    """What a class of the user's gets from one that it inherits from; reasons are empty for what is
    harmless."""

    constructing: str = ""
    """Why its `__new__`, `__init__` or metaclass must not get arguments of a capture."""
    restoring: str = ""
    """Why a pickle must not make one by `__new__` and set its state."""
    collects: str = ""
    """What it only stores: `items` by `append`, `extend` or `add`, or `pairs` by `__setitem__`."""
    forwards: Mapping[str, str] = MappingProxyType({})
    """Method → the method that it calls, and nothing else: whose class defines that may have it called."""
    bare: bool = False
    """Whether it has no attribute that is named without an underscore, so that it hides no method."""


_EXCEPTIONS = frozenset(
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type)
    and issubclass(kind, BaseException)
    and kind not in (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)  # they trust their places
)
_BARE = {"builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol"}
_BARE |= {"typing_extensions.Generic", "typing_extensions.Protocol", "contextlib.AbstractContextManager"}
_ABSTRACT = _of(
    "collections.abc",
    "Callable Collection Container Hashable Iterable Iterator Mapping Reversible Sequence Set Sized",
)
_OF_ITEMS = _of("builtins", "list set bytearray") | _of("collections", "deque UserList")
_OF_ITEMS |= _of("collections.abc", "MutableSequence MutableSet")
_OF_PAIRS = _of("builtins", "dict") | _of("collections", "OrderedDict Counter UserDict")
_OF_PAIRS |= {"typing.TypedDict", "typing_extensions.TypedDict", "collections.abc.MutableMapping"}
_VALUES = (
    _of("builtins", "int float complex str bytes tuple frozenset")
    | {f"builtins.{name}" for name in _EXCEPTIONS}
    | {"collections.namedtuple"}
    | _of(_TYPING, "NamedTuple")
    | _of("enum", "Enum IntEnum Flag IntFlag StrEnum ReprEnum")
)
_MODULES = _of("torch.nn", "Module ModuleList ModuleDict Sequential ParameterList")
_MODULES |= _of("torch.nn.modules torch.nn.modules.module", "Module")
_FUNCTIONS = _of("torch.autograd torch.autograd.function", "Function")
_BY_TORCH = "torch makes its objects"
_OPTIMIZERS = _of("torch.optim torch.optim.optimizer", "Optimizer")

BASES: dict[str, Base] = {
    # no code of their own
    **dict.fromkeys(_BARE, Base(bare=True)),
    # their methods call those that the class itself defines
    **dict.fromkeys(_ABSTRACT, Base()),
    # they store what they are given
    **dict.fromkeys(_OF_ITEMS, Base(collects="items")),
    **dict.fromkeys(_OF_PAIRS, Base(collects="pairs")),
    **dict.fromkeys(_VALUES, Base()),
    # stores submodules, parameters and hooks; __setstate__ updates __dict__
    **dict.fromkeys(_MODULES, Base(forwards={"__call__": "forward"})),
    **dict.fromkeys(_FUNCTIONS, Base(_BY_TORCH, _BY_TORCH, forwards={"apply": "forward"})),
    **dict.fromkeys(_of("torch.utils.data", "Dataset IterableDataset"), Base()),
    **dict.fromkeys(_OPTIMIZERS, Base(restoring="its __setstate__ calls methods of the state")),
}
"""Classes of others that a class of the user's may inherit from, by full name. With any other base, its
objects can't be made or restored without `--allow`: who knows what its `__init__`, `__setstate__`, `__hash__`
or `__del__` do with what a capture chose."""

_MODULE_METHODS = words_of(
    """
    train eval requires_grad_ zero_grad parameters named_parameters buffers named_buffers children
    named_children modules named_modules state_dict load_state_dict get_parameter get_buffer get_submodule
    to cpu cuda float double half bfloat16
    """
)
HARMLESS_METHODS: dict[str, frozenset[str]] = {
    **dict.fromkeys(_MODULES, _MODULE_METHODS),
    "torch.nn.Sequential": _MODULE_METHODS | {"forward"},
    **dict.fromkeys(_OPTIMIZERS, words_of("zero_grad state_dict")),
}
"""Methods that jobs call by RPC without defining them: they read and move parameters, and call no argument.
`apply`, `register_*_hook`, `register_module`, `compile` and whatever else is not listed needs `--allow`."""

LOOKUPS = ("__getattribute__", "__class__")
"""With them in a class, an attribute need not be what the class binds."""

_ALWAYS = ("__setattr__", "__getattribute__", "__getattr__", "__del__")
CONSTRUCTED = ("__new__", "__init__", "__post_init__", *_ALWAYS)
"""Methods that run when an object is made: what a class binds to them must be its own."""
RESTORED = ("__new__", "__setstate__", *_ALWAYS, "__hash__", "__eq__", "__class__", "__dict__")
"""Methods that run when a pickle makes an object, sets its state and uses it as a key."""
ITEMS, PAIRS = ("append", "extend", "add"), ("__setitem__",)
"""Methods by which a pickle adds items to an object, and keys with values."""
