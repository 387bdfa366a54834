"""The inert tree as text, as a person would write the value in Python.

In goes any value of either dialect, out comes one line of printable text. Captured values are hostile:
everything is escaped as `repr` does (control, format and surrogate characters become backslash sequences),
long parts are shortened with their size, cycles and deep nesting are cut, and the work is bounded by the
length of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from rpcinspect.pickles import numpy_nodes, semantic
from rpcinspect.pickles.tree import Buffer, Dict, Extension, Global, PersistentRef, PickleCall, Set, Value


def render(
    value: Value,
    tensors: Sequence[str] | None = None,
    *,
    max_chars: int = 4000,
    short: bool = False,
) -> str:
    """Returns one line of printable text; never raises. `tensors[i]` is shown for a reference to tensor i;
    `short`: an RRef by its id alone, `RRef(0:2)`."""
    renderer = _Renderer(tensors or (), max_chars, short)
    try:
        renderer.value(value)
    except _FullError:
        return "".join(renderer.out)[: max(max_chars - 1, 0)] + "…"
    return "".join(renderer.out)


def render_args(
    root: Value, tensors: Sequence[str] | None = None
) -> tuple[str, list[str], dict[str, str]] | None:
    """(function, positional arguments, keyword arguments) of a PythonUDF; None if `root` is none."""
    call = semantic.python_udf(root)
    if call is None:
        return None
    named = type(call.func) is Global
    function = _printable(str(call.func)) if named else render(call.func, tensors)
    return function, *render_given(call.args, call.kwargs, tensors)


def render_given(
    by_place: Value, by_name: Value, tensors: Sequence[str] | None = None
) -> tuple[list[str], dict[str, str]]:
    """Positional and keyword arguments; after `_MAX_GIVEN` characters the rest is counted, not shown."""
    positional = by_place if type(by_place) in (tuple, list) else (by_place,)
    pairs = by_name.pairs if type(by_name) is Dict else []
    left = _MAX_GIVEN
    args: list[str] = []
    for i, value in enumerate(positional):
        if left <= 0:
            args.append(f"… ({len(positional) - i} more)")
            break
        args.append(render(value, tensors))
        left -= len(args[-1]) + 1
    kwargs: dict[str, str] = {}
    for key, value in pairs:
        if left <= 0:
            kwargs["…"] = f"({len(pairs) - len(kwargs)} more)"
            break
        name = _printable(key) if type(key) is str else render(key, tensors)
        kwargs[name] = render(value, tensors)
        left -= len(name) + len(kwargs[name]) + 1
    return args, kwargs


T = TypeVar("T")


class _FullError(Exception):
    """Raised when the text has reached its length."""


class _Renderer:
    def __init__(self, tensors: Sequence[str], max_chars: int, short: bool) -> None:
        self.out: list[str] = []
        self.left = max_chars
        self.tensors = tensors
        self.short = short
        self.path: set[int] = set()
        """Identities of the values that are being written, to see cycles."""

    def emit(self, text: str) -> None:
        self.out.append(text)
        self.left -= len(text)
        if self.left < 0:
            raise _FullError

    def value(self, value: Value) -> None:
        kind = type(value)
        if kind in _ATOMS:
            self.emit(_ATOMS[kind](value))
            return
        write = _NODES.get(kind)
        if write is None:
            self.emit(f"<{kind.__name__}>")
        elif id(value) in self.path:
            self.emit("<cycle>")
        elif len(self.path) >= _MAX_DEPTH:
            self.emit("…")
        else:
            self.path.add(id(value))
            write(self, value)
            self.path.discard(id(value))

    def items(
        self, opening: str, items: Sequence[T], closing: str, write: Callable[[T], None] | None = None
    ) -> None:
        self.emit(opening)
        for i, item in enumerate(items):
            if i:
                self.emit(", ")
            if i >= _MAX_ITEMS:
                self.emit(f"… ({len(items)} items)")
                break
            (write or self.value)(item)
        self.emit(closing)

    def mixed(self, *parts: Value) -> None:
        """Text and value in turn, text first."""
        for i, part in enumerate(parts):
            (self.value if i % 2 else self.emit)(part)

    def pair(self, pair: tuple[Value, Value]) -> None:
        self.value(pair[0])
        self.mixed(": ", pair[1])

    def keyword(self, pair: tuple[Value, Value]) -> None:
        if type(pair[0]) is str:
            self.emit(_printable(pair[0]))
        else:
            self.value(pair[0])
        self.mixed("=", pair[1])

    def tuple(self, value: tuple[Value, ...]) -> None:
        self.items("(", value, ",)" if len(value) == 1 else ")")

    def list(self, value: list[Value]) -> None:
        self.items("[", value, "]")

    def dict(self, value: Dict) -> None:
        self.items("{", value.pairs, "}", self.pair)

    def set(self, value: Set) -> None:
        if not value.items:
            self.emit("frozenset()" if value.frozen else "set()")
        elif value.frozen:
            self.items("frozenset({", value.items, "})")
        else:
            self.items("{", value.items, "}")

    def persistent(self, value: PersistentRef) -> None:
        self.mixed("persistent(", value.id, ")")

    def call(self, value: PickleCall) -> None:
        special = _SPECIAL.get(value.function) if type(value.function) is Global else _Renderer.received
        if special is not None and special(self, value):
            return
        if value.how == "stack_global":
            self.emit("<import>")
        else:
            self.value(value.function)
        args = value.args if type(value.args) is tuple else (value.args,)
        extra = ([value.items] if value.items else []) + ([Dict(value.pairs)] if value.pairs else [])
        if args or extra or value.kwargs is not None or not value.has_state:
            self.arguments((*args, *extra), value.kwargs)
        if value.has_state:
            self.state(value.state)

    def arguments(self, args: Sequence[Value], kwargs: Value) -> None:
        self.items("(", args, "")
        if type(kwargs) is Dict and kwargs.pairs:
            self.items(", " if args else "", kwargs.pairs, "", self.keyword)
        elif kwargs is not None and type(kwargs) is not Dict:
            self.mixed(", **" if args else "**", kwargs)
        self.emit(")")

    def state(self, state: Value) -> None:
        """`{…}` behind an object; the pair (dict, slots) of objects with slots as one."""
        if type(state) is tuple and len(state) == 2 and type(state[1]) is Dict:
            first = state[0].pairs if type(state[0]) is Dict else []
            if state[0] is None or type(state[0]) is Dict:
                state = Dict([*first, *state[1].pairs])
        if type(state) is Dict:
            self.dict(state)
        else:
            self.mixed("{", state, "}")

    # What a node means, see _SPECIAL.

    def tensor(self, node: PickleCall) -> bool:
        index = semantic.tensor_index(node)
        if index is None:
            return False
        self.emit(self.tensors[index] if 0 <= index < len(self.tensors) else f"tensor#{index}")
        return True

    def received(self, node: PickleCall) -> bool:
        return self.tensor(node) or self.rref(node) or _says(_script)(self, node)

    def rref(self, node: PickleCall) -> bool:
        fork = semantic.rref_fork(node)
        if fork is None:
            return False
        self.emit("RRef({}:{})".format(*fork.rref_id) if self.short else fork.text)
        return True

    def tagged(self, node: PickleCall) -> bool:
        plain = semantic.untag(node)
        if plain is node:
            return False
        self.value(plain)
        return True

    def parameter(self, node: PickleCall) -> bool:
        if type(node.args) is not tuple or not node.args:
            return False
        self.mixed("Parameter(", node.args[0], ")")
        return True

    def attribute(self, node: PickleCall) -> bool:
        """getattr(x, 'name') as x.name."""
        args = node.args
        if type(args) is not tuple or len(args) != 2:
            return False
        if type(args[1]) is not str:
            return False
        name = args[1][: self.left + 1]  # no more can be shown; it may be long, and there may be many
        if not name.isidentifier() or not name.isprintable():
            return False
        self.value(args[0])
        self.emit("." + name)
        return True

    def array(self, node: PickleCall) -> bool:
        parts = numpy_nodes.array(node)
        if parts is None:
            return False
        self.mixed("numpy.ndarray(shape=", parts.shape, ", dtype=", parts.dtype, ", ", parts.data, ")")
        return True

    def scalar(self, node: PickleCall) -> bool:
        parts = numpy_nodes.scalar(node)
        if parts is None:
            return False
        self.mixed(f"numpy.{parts[0]}(", parts[1], ")")
        return True


_Special: TypeAlias = Callable[[_Renderer, PickleCall], bool]


def _says(text: Callable[[PickleCall], str | None]) -> _Special:
    """Writes nodes of which `text` makes one text; None: the node is something else."""

    def write(renderer: _Renderer, node: PickleCall) -> bool:
        found = text(node)
        if found is not None:
            renderer.emit(found)
        return found is not None

    return write


def _script(node: PickleCall) -> str | None:
    archive = semantic.script_module(node)
    return None if archive is None else f"ScriptModule({_bytes(archive)})"


def _device(node: PickleCall) -> str | None:
    name = semantic.device(node)
    return None if name is None else f"device({_text(name)})"


def _worker(node: PickleCall) -> str | None:
    worker = semantic.worker_info(node)
    return None if worker is None else f"WorkerInfo(id={worker.id}, name={_text(worker.name)})"


def _latin1(node: PickleCall) -> str | None:
    """Bytes, as protocols 0 to 2 write them."""
    raw = numpy_nodes.raw_bytes(node)
    return _bytes(raw) if type(raw) is bytes else None


def _dtype(node: PickleCall) -> str | None:
    code = numpy_nodes.dtype(node)
    return None if code is None else f"dtype({_text(code)})"


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _text(text: str) -> str:
    if len(text) <= _MAX_STRING:
        return repr(text)
    return f"{text[:_MAX_STRING]!r}… ({len(text)} characters)"


def _bytes(raw: bytes | bytearray) -> str:
    head = repr(bytes(raw[:_MAX_BYTES]))
    return head if len(raw) <= _MAX_BYTES else f"{head}… ({len(raw)} bytes)"


def _int(n: int) -> str:
    return repr(n) if n.bit_length() <= _MAX_INT_BITS else f"<integer of {n.bit_length()} bits>"


def _name(value: Global) -> str:
    return _printable(value.name if value.module == "builtins" else str(value))


_MAX_GIVEN = 64_000
_MAX_ITEMS = 100
_MAX_STRING = 1000
_MAX_BYTES = 32
_MAX_INT_BITS = 512
_MAX_DEPTH = 60
"""Levels of nesting that are shown; each costs a few Python frames, and nobody reads more."""

_ATOMS: dict[type, Callable[[Value], str]] = {
    type(None): repr,
    bool: repr,
    int: _int,
    float: repr,
    str: _text,
    bytes: _bytes,
    bytearray: lambda raw: f"bytearray({_bytes(raw)})",
    Global: _name,
    Extension: lambda node: f"extension#{node.code}",
    Buffer: lambda node: f"buffer#{node.index}",
}

_NODES: dict[type, Callable[[_Renderer, Value], None]] = {
    tuple: _Renderer.tuple,
    list: _Renderer.list,
    Dict: _Renderer.dict,
    Set: _Renderer.set,
    PickleCall: _Renderer.call,
    PersistentRef: _Renderer.persistent,
}

_SPECIAL: dict[Global, _Special] = {
    Global("torch.jit._pickle", "build_tensor_from_id"): _Renderer.tensor,
    Global("torch.distributed.rpc", "rref"): _Renderer.rref,
    **dict.fromkeys(semantic.TAGS, _Renderer.tagged),
    Global("torch._utils", "_rebuild_parameter"): _Renderer.parameter,
    Global("torch", "device"): _says(_device),
    Global("torch._C._distributed_rpc", "WorkerInfo"): _says(_worker),
    Global("_codecs", "encode"): _says(_latin1),
    Global("builtins", "getattr"): _Renderer.attribute,
    **dict.fromkeys((*numpy_nodes.RECONSTRUCT, *numpy_nodes.FROMBUFFER), _Renderer.array),
    **dict.fromkeys(numpy_nodes.SCALAR, _Renderer.scalar),
    numpy_nodes.DTYPE: _says(_dtype),
}
"""Functions whose calls mean something; each answers whether it has written the node."""
