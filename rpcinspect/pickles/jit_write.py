"""The inert tree -> the bytes that upstream's C++ Pickler writes for it (protocol 2).

Mirrors torch/csrc/jit/serialization/pickler.cpp. Upstream writes the shortest integer, writes each string and
each global once and refers to it afterwards, and memoises other values where more than one owner holds them.
That last thing can't be seen in a value, so it comes from the `Forms` of a reading, or made by hand, such as
`Forms(parts=(OWNED, OWNED))` for two memoised ids in a tuple, or from what is usual in rpc's messages: there
tensors, RRefs, dicts and storages are memoised, everything inside a literal tensor but its storage is not.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles import opcodes as ops
from rpcinspect.pickles.jit import Forms
from rpcinspect.pickles.tree import Dict, Global, PersistentRef, PickleCall, Value


def write_jit(value: Value, forms: Forms | None = None, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """A JIT pickle of the value.

    With the `forms` of `read_forms` an unchanged value gives the bytes that were read; changed values are
    written as upstream would, and parts without forms by default. Raises DecodeError for a value that has no
    place in this dialect, LimitExceeded for one nested deeper than `limits.pickle_depth`, cycles included.
    """
    writer = _JitWriter(limits)
    writer.write(value, forms)
    return b"\x80\x02" + bytes(writer.out) + b"."


OWNED = Forms(put=True)
"""For a value that upstream memoises because of its owners, such as the ids in most RRef messages."""


class _JitWriter:
    def __init__(self, limits: Limits) -> None:
        self.out = bytearray()
        self.depth = 0
        self.max_depth = limits.pickle_depth
        self.literal = 0
        """Literal tensors that are being written, one inside the other for sparse ones."""
        self.memo: dict[object, int] = {}
        """Memo number by key: see `_key`."""
        self.alive: list[Value] = []
        """Keeps memoised values, so that their identities are not used again."""

    def write(self, value: Value, forms: Forms | None, marked: int = 0) -> None:
        """`marked`: levels of tuples, from here down, that are written with MARK by default."""
        kind = type(value)
        if kind in _ATOMS:
            self.out += _ATOMS[kind](value)
            return
        if (forms is None or forms.op == ops.BINGET or kind in _BY_VALUE) and self.refer(value):
            return
        if forms is not None and forms.op == ops.BINGET:
            forms = None
        self.depth += 1
        if self.depth > self.max_depth:
            raise LimitExceeded("pickle", "pickle_depth", self.max_depth, self.depth)
        if kind is tuple:
            self.tuple(value, forms, marked)
        elif kind is list:
            self.list(value, forms)
        elif kind is Dict:
            self.dict(value, forms)
        elif kind is PickleCall:
            self.call(value, forms)
        elif kind is PersistentRef:
            self.write(value.id, _part(forms, 0), 1)
            self.out.append(ops.BINPERSID)
        elif kind is str or kind is bytes:
            self.string(value)
        elif kind is Global:
            self.out += b"c%s\n%s\n" % (_utf8(value.module), _utf8(value.name))
        else:
            raise DecodeError("pickle", f"a {kind.__name__} has no place in a JIT pickle")
        self.depth -= 1
        if kind in _BY_VALUE or (forms.put if forms is not None else self.owned_twice(value)):
            self.put(value)

    def refer(self, value: Value) -> bool:
        index = self.memo.get(_key(value))
        if index is None:
            return False
        self.out += pack("<BB", ops.BINGET, index) if index < 256 else pack("<BI", ops.LONG_BINGET, index)
        return True

    def put(self, value: Value) -> None:
        index = len(self.alive)
        self.alive.append(value)
        self.memo[_key(value)] = index
        self.out += pack("<BB", ops.BINPUT, index) if index < 256 else pack("<BI", ops.LONG_BINPUT, index)

    def tuple(self, value: tuple[Value, ...], forms: Forms | None, marked: int) -> None:
        op = forms.op if forms is not None else 0
        mark = len(value) > 3 or (op == ops.TUPLE if op else marked > 0)
        if mark:
            self.out.append(ops.MARK)
        for i, item in enumerate(value):
            self.write(item, _part(forms, i), marked - 1)
        self.out.append(ops.TUPLE if mark else _TUPLES[len(value)])

    def list(self, value: list[Value], forms: Forms | None) -> None:
        if forms is not None and forms.op == ops.EMPTY_LIST and not value:
            self.out.append(ops.EMPTY_LIST)
            return
        self.out += b"]("
        for i, item in enumerate(value):
            self.write(item, _part(forms, i))
        self.out.append(ops.APPENDS)

    def dict(self, value: Dict, forms: Forms | None) -> None:
        if forms is not None and forms.op == ops.EMPTY_DICT and not value.pairs:
            self.out.append(ops.EMPTY_DICT)
            return
        self.out += b"}("
        for i, (key, item) in enumerate(value.pairs):
            self.write(key, _part(forms, 2 * i))
            self.write(item, _part(forms, 2 * i + 1))
        self.out.append(ops.SETITEMS)

    def call(self, value: PickleCall, forms: Forms | None) -> None:
        if value.how not in _CALLS or value.items or value.pairs or value.kwargs is not None:
            raise DecodeError("pickle", f"a call by {value.how} has no place in a JIT pickle")
        function = value.function if type(value.function) is Global else None
        self.write(value.function, _part(forms, 0))
        self.literal += function in _LITERAL
        self.write(value.args, _part(forms, 1), _MARKED.get(function, 0))
        self.literal -= function in _LITERAL
        self.out.append(_CALLS[value.how])
        if value.has_state:
            self.write(value.state, _part(forms, 2))
            self.out.append(ops.BUILD)

    def owned_twice(self, value: Value) -> bool:
        """Whether upstream usually memoises such a value in rpc's messages."""
        if type(value) is PersistentRef:
            return True
        if self.literal or type(value) is not PickleCall:
            return False
        if value.function == _TAG:
            return type(value.args) is tuple and bool(value.args) and type(value.args[0]) is Dict
        return value.function in _MEMOISED

    def string(self, value: str | bytes) -> None:
        raw = _utf8(value) if isinstance(value, str) else value
        if len(raw) < 1 << 32:
            self.out += pack("<BI", ops.BINUNICODE, len(raw))
        else:
            self.out += pack("<BQ", ops.BINUNICODE8, len(raw))
        self.out += raw


def _part(forms: Forms | None, index: int) -> Forms | None:
    return forms.parts[index] if forms is not None and index < len(forms.parts) else None


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _key(value: Value) -> object:
    """Returns the content of strings, globals, storages and devices; the identity of all else."""
    kind = type(value)
    if kind is str:
        return _utf8(value)
    if kind is bytes or kind is Global:
        return value
    if kind is PersistentRef and _plain(value.id):
        return ("storage", value.id)
    if kind is PickleCall and value.function == _DEVICE and _plain(value.args):
        return ("device", value.args)
    return id(value)


def _plain(parts: Value) -> bool:
    return type(parts) is tuple and all(type(part) in (str, int, Global) for part in parts)


def _integer(n: int) -> bytes:
    if -(1 << 31) <= n < 1 << 31:
        return ops.integer(n)
    if -(1 << 63) <= n < 1 << 63:
        return pack("<BBq", ops.LONG1, 8, n)
    raise DecodeError("pickle", "an integer of more than 64 bits has no place in a JIT pickle")


_ATOMS: dict[type, Callable[[Value], bytes]] = {
    int: _integer,
    bool: lambda v: b"\x88" if v else b"\x89",
    float: lambda v: pack(">Bd", ops.BINFLOAT, v),
    type(None): lambda v: b"N",
}
"""Types whose bytes follow from the value alone."""

_BY_VALUE = {str, bytes, Global}
"""Memoised always, once for all equal values."""

_TUPLES = (ops.EMPTY_TUPLE, ops.TUPLE1, ops.TUPLE2, ops.TUPLE3)
_CALLS = {"reduce": ops.REDUCE, "newobj": ops.NEWOBJ}
_DEVICE = Global("torch", "device")
_TAG = Global("torch.jit._pickle", "restore_type_tag")
_RREF = Global("torch.distributed.rpc", "rref")
_LITERAL = (
    Global("torch._utils", "_rebuild_tensor_v2"),
    Global("torch._utils", "_rebuild_qtensor"),
    Global("torch._utils", "_rebuild_sparse_tensor"),
)
_MARKED: dict[Global | None, int] = {
    Global("torch.jit._pickle", "build_tensor_from_id"): 1,
    Global("torch.jit._pickle", "build_tensorlist"): 1,
    Global("torch.jit._pickle", "build_intlist"): 1,
    Global("torch.jit._pickle", "build_doublelist"): 1,
    Global("torch.jit._pickle", "build_boollist"): 1,
    _RREF: 1,
    **dict.fromkeys(_LITERAL, 2),
}
"""Calls whose arguments upstream writes with MARK whatever their number; for how many levels of tuples."""

_MEMOISED = (_DEVICE, _RREF, Global("torch.jit._pickle", "build_tensor_from_id"), *_LITERAL)
