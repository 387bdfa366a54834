"""The inert tree as Python source that makes the same value: what a person would write, with names imported.

In: any value of either dialect, with names for its tensors and RRefs. Out: source in pieces that
`lay_out` puts into lines, and the imports that it needs. Nothing is ever evaluated. All text is written in
ASCII, every name is checked to be one. What has no source raises `NoSourceError`: what only loading would
make known, and what is too large to be read by anybody.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from rpcinspect.export.reproducer.python_names import (
    Brackets,
    Imports,
    Item,
    NoSourceError,
    SourceItem,
    flat,
    is_name,
    quoted,
    quoted_bytes,
)
from rpcinspect.pickles import numpy_nodes, semantic
from rpcinspect.pickles.places import PARAMETER
from rpcinspect.pickles.tree import Dict, Global, PersistentRef, PickleCall, Set, Value
from rpcinspect.rpc.callee import RECONSTRUCTOR

MAX_DEPTH = 40
MAX_NODES = 100_000
MAX_TEXT = 100_000
"""Characters or bytes of one literal."""
MAX_DECIMAL_BITS = 1024
"""Python itself refuses decimals of more than some thousand digits."""


class Names(Struct, frozen=True):
    """What stands for the tensors and the RRefs of a message."""

    tensor: Callable[[int], str]
    rref: Callable[[semantic.RRefForkData], str]
    """Both raise `NoSourceError` for what there is no name for."""
    integers: Mapping[int, str]
    """Integers that have a name: the id of the context in which the call is made."""


class SourceWriter:
    """Writes values of one script as source."""

    def __init__(self, imports: Imports) -> None:
        self._imports = imports
        self._names = Names(_nobody, _nobody, {})
        self._left = MAX_NODES
        self._path: set[int] = set()
        self.helpers: set[str] = set()
        """Functions of the script that what was written calls: `make_object`."""

    def write(self, value: Value, names: Names) -> SourceItem:
        """The source of a value. Raises `NoSourceError`."""
        self._names, self._left = names, MAX_NODES
        self._path.clear()
        return self._value(value)

    def name(self, name: Global) -> str:
        """Returns the script's expression for a global."""
        return self._imports.expression(name)

    def _value(self, value: Value) -> SourceItem:
        kind = type(value)
        atom = ATOMS.get(kind)
        if atom is not None:
            return self._atom(atom, value)
        write = NODES.get(kind)
        self._left -= 1
        if write is None:
            raise NoSourceError(f"there is no source for a {kind.__name__}")
        if id(value) in self._path:
            raise NoSourceError("it contains itself")
        if len(self._path) >= MAX_DEPTH or self._left < 0:
            raise NoSourceError("it is too large for a readable script")
        self._path.add(id(value))
        source = write(self, value)
        self._path.discard(id(value))
        return source

    def _atom(self, atom: Callable[[Value], str], value: Value) -> str:
        if type(value) in (str, bytes, bytearray) and len(value) > MAX_TEXT:
            raise NoSourceError(f"a literal of {len(value):,} characters is too long for a readable script")
        if type(value) is int and value in self._names.integers:
            return self._names.integers[value]
        return atom(value)

    # --- containers -----------------------------------------------------------------------------------------

    def _all(self, values: Iterable[Value]) -> list[SourceItem]:
        return [self._value(value) for value in values]

    def _tuple(self, value: tuple[Value, ...]) -> SourceItem:
        return Brackets("(", self._all(value), ")", single_comma=True)

    def _list(self, value: list[Value]) -> SourceItem:
        return Brackets("[", self._all(value), "]")

    def _dict(self, value: Dict) -> SourceItem:
        items = []
        for key, child in value.pairs:
            if type(key) not in (str, int, bytes, bool, float, type(None)):
                raise NoSourceError("a dict with keys that are not plain values")
            items.append(Item(f"{self._value(key)}: ", self._value(child)))
        return Brackets("{", tuple(items), "}")

    def _set(self, value: Set) -> SourceItem:
        items = self._all(value.items)
        if not items:
            return "frozenset()" if value.frozen else "set()"
        return Brackets("frozenset({" if value.frozen else "{", items, "})" if value.frozen else "}")

    def _global(self, value: Global) -> SourceItem:
        return self.name(value)

    # --- objects --------------------------------------------------------------------------------------------

    def _call(self, node: PickleCall) -> SourceItem:
        special = self._special(node)
        if special is not None:
            return special
        if type(node.function) is not Global:
            raise NoSourceError("only loading shows what it calls")
        if node.how not in ("reduce", "newobj", "newobj_ex", "inst", "obj"):
            raise NoSourceError("loading would change something while it is made")
        if type(node.args) is not tuple:
            raise NoSourceError("it is called with something other than a tuple")
        if node.function in numpy_nodes.RECONSTRUCT or node.function in numpy_nodes.FROMBUFFER:
            return self._array(node)
        if node.function in numpy_nodes.SCALAR:
            return self._scalar(node)
        if node.function == PARTIAL and node.has_state:
            return self._partial(node)
        if node.items or node.pairs:
            return self._collection(node)
        if node.how in ("newobj", "newobj_ex") or node.has_state or node.function == RECONSTRUCTOR:
            return self._object(node)
        function = self.name(node.function)
        return Brackets(f"{function}(", self._arguments(node.args, None), ")")

    def _special(self, node: PickleCall) -> SourceItem | None:
        """What rpc and torch themselves put into pickles."""
        index = semantic.tensor_index(node)
        if index is not None:
            return self._names.tensor(index)
        fork = semantic.rref_fork(node)
        if fork is not None:
            return self._names.rref(fork)
        module = semantic.remote_module(node)
        if module is not None:
            return self._remote_module(module)
        if semantic.script_module(node) is not None:
            raise NoSourceError("it holds a TorchScript archive")
        plain = semantic.untag(node)
        if plain is not node:
            return self._value(plain)
        device = semantic.device(node)
        if device is not None:
            return f"torch.device({quoted(device)})"
        worker = semantic.worker_info(node)
        if worker is not None:
            return f"rpc.get_worker_info({quoted(worker.name)})"
        if node.function == PARAMETER and type(node.args) is tuple and len(node.args) == 3:
            if type(node.args[1]) is not bool:
                raise NoSourceError("a parameter that is not written as torch writes them")
            grad = () if node.args[1] else (Item("requires_grad=", "False"),)
            return Brackets("torch.nn.Parameter(", (self._value(node.args[0]), *grad), ")")
        raw = numpy_nodes.raw_bytes(node)
        if type(raw) is bytes:
            return quoted_bytes(raw)
        return self._attribute(node)

    def _remote_module(self, module: semantic.PickledRemoteModule) -> SourceItem:
        """A RemoteModule around the RRef of its module, as torch makes one for users."""
        where = module.attributes[:2]
        if [type(one) for one in where] != [str, str]:
            raise NoSourceError("a RemoteModule that is not written as torch writes them")
        init = self.name(INIT_REMOTE_MODULE)
        return Brackets(f"{init}(", [quoted("/".join(where)), self._names.rref(module.rref)], ")")

    def _attribute(self, node: PickleCall) -> SourceItem | None:
        if node.function != semantic.GETATTR:
            return None
        args = node.args
        if type(args) is not tuple or len(args) != 2 or type(args[1]) is not str or not is_name(args[1]):
            raise NoSourceError("an attribute that only loading shows")
        owner = self._value(args[0])
        if isinstance(owner, Brackets):
            return Brackets(owner.open, owner.items, f"{owner.close}.{args[1]}", owner.single_comma)
        return f"{flat(owner)}.{args[1]}"

    def _arguments(self, args: tuple[Value, ...], kwargs: Value) -> list[SourceItem]:
        items = [self._value(value) for value in args]
        for key, value in kwargs.pairs if type(kwargs) is Dict else ():
            if type(key) is not str or not is_name(key):
                raise NoSourceError("a keyword that is not a name")
            items.append(Item(f"{key}=", self._value(value)))
        return items

    def _collection(self, node: PickleCall) -> SourceItem:
        """Collections of Python's own, made empty and filled."""
        if node.has_state or (node.function not in COLLECTIONS):
            raise NoSourceError(f"there is no source for how a {node.function.name[:80]!a} is filled")
        function = self.name(node.function)
        content: SourceItem
        if node.pairs:
            content = Brackets("[", [self._tuple(pair) for pair in node.pairs], "]")
            if any(type(key) is str for key, _ in node.pairs):
                content = self._dict(Dict(node.pairs))
        else:
            content = self._list(node.items)
        return Brackets(f"{function}(", (*self._arguments(node.args, None), content), ")")

    def _partial(self, node: PickleCall) -> SourceItem:
        """`functools.partial`, whose state is (function, args, kwargs, attributes)."""
        state = node.state
        if type(state) is not tuple or len(state) != 4 or type(state[1]) is not tuple:
            raise NoSourceError("a partial that is not written as Python writes them")
        if type(state[2]) is not Dict or state[3] is not None:
            raise NoSourceError("a partial with attributes of its own")
        arguments = self._arguments((state[0], *state[1]), state[2])
        return Brackets(f"{self.name(PARTIAL)}(", arguments, ")")

    def _object(self, node: PickleCall) -> SourceItem:
        """An object of the user's class, by its attributes."""
        function, args = node.function, node.args
        if node.function == RECONSTRUCTOR:
            if len(args) != 3 or args[1] != OBJECT or args[2] is not None:
                raise NoSourceError("there is no source for how it is made")
            function, args = args[0], ()  # as protocols 0 and 1 write objects
        if node.how == "newobj_ex" or type(function) is not Global:
            raise NoSourceError("there is no source for how it is made")
        name = self.name(function)
        items: list[SourceItem] = [name]
        if args:
            items.append(Item("args=", self._tuple(args)))
        if node.has_state:
            items.append(Item("state=", self._value(node.state)))
        self.helpers.add("make_object")
        return Brackets("make_object(", items, ")")

    def _array(self, node: PickleCall) -> SourceItem:
        parts = numpy_nodes.array(node)
        code = numpy_nodes.dtype(parts.dtype) if parts is not None else None
        if parts is None or code is None or not isinstance(parts.data, (bytes, bytearray)) or "O" in code:
            raise NoSourceError("a numpy array that is not written as numpy writes them")
        if len(parts.data) > MAX_TEXT // 4:
            raise NoSourceError("a numpy array that is too long for a readable script")
        self._imports.modules.add("numpy")
        data = quoted_bytes(bytes(parts.data))
        shape = self._value(parts.shape)
        made = f"numpy.frombuffer({data}, dtype={quoted(code)})"
        return Brackets(f"{made}.reshape(", (shape,), ").copy()")

    def _scalar(self, node: PickleCall) -> SourceItem:
        parts = numpy_nodes.scalar(node)
        if parts is None or not is_name(parts[0]) or type(parts[1]) not in (int, float, bool):
            raise NoSourceError("a numpy scalar that has no literal")
        self._imports.modules.add("numpy")
        return f"numpy.{parts[0]}({self._value(parts[1])})"

    def _persistent(self, value: PersistentRef) -> SourceItem:
        raise NoSourceError("it lies outside of its pickle")


def _nobody(_: object) -> str:
    raise NoSourceError("there is nothing that it could stand for")


def _int(number: int) -> str:
    return repr(number) if number.bit_length() <= MAX_DECIMAL_BITS else hex(number)


def _float(number: float) -> str:
    if math.isnan(number):
        bits = struct.pack("<d", number)
        if bits == struct.pack("<d", math.nan):
            return 'float("nan")'
        return f'struct.unpack("<d", bytes.fromhex({quoted(bits.hex())}))[0]'
    if math.isinf(number):
        return f'float("{"inf" if number > 0 else "-inf"}")'
    return repr(number)


INIT_REMOTE_MODULE = Global("torch.distributed.nn.api.remote_module", "RemoteModule.init_from_module_rref")
OBJECT = Global("builtins", "object")
PARTIAL = Global("functools", "partial")
COLLECTIONS = frozenset(
    Global("collections", name) for name in ("OrderedDict", "defaultdict", "deque", "Counter")
) | {Global("builtins", name) for name in ("list", "dict", "set")}

ATOMS: dict[type, Callable[[Value], str]] = {
    type(None): repr,
    bool: repr,
    int: _int,
    float: _float,
    str: quoted,
    bytes: quoted_bytes,
    bytearray: lambda raw: f"bytearray({quoted_bytes(bytes(raw))})",
}

NODES: dict[type, Callable[[SourceWriter, Value], SourceItem]] = {
    tuple: SourceWriter._tuple,
    list: SourceWriter._list,
    Dict: SourceWriter._dict,
    Set: SourceWriter._set,
    Global: SourceWriter._global,
    PickleCall: SourceWriter._call,
    PersistentRef: SourceWriter._persistent,
}
