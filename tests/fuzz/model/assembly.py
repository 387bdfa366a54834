"""Pickles written by hand: small functions that give the opcodes of one value each.

A program is the opcodes of a value between `PROTO` and `STOP`; values are put into each other as bytes.
"""

from __future__ import annotations

import pickletools
from io import StringIO

NONE, TRUE, FALSE, MARK, STOP = b"N", b"\x88", b"\x89", b"(", b"."
EMPTY_TUPLE, EMPTY_LIST, EMPTY_DICT, EMPTY_SET = b")", b"]", b"}", b"\x8f"
TUPLE, TUPLE1, TUPLE2, TUPLE3, LIST, DICT = b"t", b"\x85", b"\x86", b"\x87", b"l", b"d"
APPEND, APPENDS, SETITEM, SETITEMS, ADDITEMS, FROZENSET = b"a", b"e", b"s", b"u", b"\x90", b"\x91"
REDUCE, NEWOBJ, NEWOBJ_EX, OBJ, BUILD, STACK_GLOBAL = b"R", b"\x81", b"\x92", b"o", b"b", b"\x93"
POP, DUP, POP_MARK, MEMOIZE = b"0", b"2", b"1", b"\x94"
RPC = "torch.distributed.rpc.internal"


def proto(number: int) -> bytes:
    """PROTO"""
    return b"\x80" + bytes([number])


def name(dotted: str) -> bytes:
    """GLOBAL of `module:name`."""
    module, _, attribute = dotted.partition(":")
    return f"c{module}\n{attribute}\n".encode()


def text(value: str) -> bytes:
    """BINUNICODE"""
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + len(data).to_bytes(4, "little") + data


def raw(value: bytes) -> bytes:
    """BINBYTES"""
    return b"B" + len(value).to_bytes(4, "little") + value


def number(value: int) -> bytes:
    """BININT, or LONG1 where that is too small."""
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def tuple_of(*items: bytes) -> bytes:
    """MARK … TUPLE"""
    return MARK + b"".join(items) + TUPLE


def list_of(*items: bytes) -> bytes:
    """EMPTY_LIST and APPENDS"""
    return EMPTY_LIST + MARK + b"".join(items) + APPENDS


def dict_of(**pairs: bytes) -> bytes:
    """EMPTY_DICT and SETITEMS, keys are texts."""
    return EMPTY_DICT + MARK + b"".join(text(key) + value for key, value in pairs.items()) + SETITEMS


def call(function: bytes | str, *args: bytes) -> bytes:
    """REDUCE; a `str` is a name."""
    return _named(function) + tuple_of(*args) + REDUCE


def new(cls: bytes | str, *args: bytes) -> bytes:
    """NEWOBJ"""
    return _named(cls) + tuple_of(*args) + NEWOBJ


def build(value: bytes, state: bytes) -> bytes:
    """BUILD"""
    return value + state + BUILD


def space(**attributes: bytes) -> bytes:
    """A SimpleNamespace with these attributes."""
    return build(call("types:SimpleNamespace"), dict_of(**attributes))


def partial(function: bytes | str, *args: bytes) -> bytes:
    """functools.partial"""
    return call("functools:partial", _named(function), *args)


def receiver(kind: str) -> bytes:
    """One of rpc's own class methods, as torch pickles them."""
    return call("builtins:getattr", name(f"{RPC}:_InternalRPCPickler"), text(kind))


def tensor(index: int) -> bytes:
    """The n-th tensor of the message."""
    return receiver("_tensor_receiver") + tuple_of(number(index)) + REDUCE


def udf(function: bytes | str, *args: bytes, kwargs: bytes = EMPTY_DICT, protocol: int = 4) -> bytes:
    """A whole request: PythonUDF(function, args, kwargs)."""
    return program(new(f"{RPC}:PythonUDF", _named(function), tuple_of(*args), kwargs), protocol)


def program(value: bytes, protocol: int = 4) -> bytes:
    """A whole pickle."""
    return proto(protocol) + value + STOP


def shown(data: bytes) -> str:
    """The disassembly, as far as there is one."""
    out = StringIO()
    try:
        pickletools.dis(data, out, indentlevel=2)
    except Exception as error:  # pickletools raises what it likes for what is no pickle
        out.write(f"… {type(error).__name__}: {error}\n")
    return out.getvalue()


def _named(value: bytes | str) -> bytes:
    return name(value) if isinstance(value, str) else value
