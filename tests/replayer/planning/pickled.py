"""Pickles of requests as opcodes, for tests of the gate: any function, with any arguments."""

from __future__ import annotations

import pickle
from typing import Any

UDF = b"\x80\x04\x8c\x1etorch.distributed.rpc.internal\x8c\tPythonUDF\x93"
PICKLER = b"\x8c\x1etorch.distributed.rpc.internal\x8c\x13_InternalRPCPickler\x93"


class Raw:
    """Opcodes that stand for a value."""

    def __init__(self, opcodes: bytes) -> None:
        self.opcodes = opcodes


def text(value: str) -> bytes:
    """SHORT_BINUNICODE"""
    return b"\x8c" + bytes([len(value)]) + value.encode()


def name(module: str, qualname: str) -> Raw:
    """STACK_GLOBAL"""
    return Raw(text(module) + text(qualname) + b"\x93")


def rebuilt(function: Raw, *args: Any) -> Raw:
    """What a function gives: `REDUCE`."""
    return Raw(function.opcodes + opcodes(args) + b"R")


def receiver(method: str, argument: bytes) -> Raw:
    """`getattr(_InternalRPCPickler, method)(argument)`"""
    got = text("builtins") + text("getattr") + b"\x93" + PICKLER + text(method) + b"\x86R"
    return Raw(got + argument + b"\x85R")


def rref(local: int, *, fork: int | None = None, type_text: str = "PyObject") -> Raw:
    """An RRef that worker 0 made and owns, as `_py_rref_receiver` gets it."""
    fork = local if fork is None else fork
    ids = b"".join(b"K" + bytes([number]) for number in (0, 0, local, 0, fork, 0))
    return receiver("_py_rref_receiver", b"(" + ids + text(type_text) + b"t")


def tensor(index: int = 0) -> Raw:
    """A tensor of the message."""
    return receiver("_tensor_receiver", b"K" + bytes([index]))


def opcodes(value: Any) -> bytes:
    """The opcodes that make a value; lists, tuples and dicts may hold `Raw`."""
    if isinstance(value, Raw):
        return value.opcodes
    if type(value) is tuple:
        return b"(" + b"".join(map(opcodes, value)) + b"t"
    if type(value) is list:
        return b"](" + b"".join(map(opcodes, value)) + b"e"
    if type(value) is dict:
        return b"}(" + b"".join(opcodes(key) + opcodes(part) for key, part in value.items()) + b"u"
    data = pickle.dumps(value, 4)  # without PROTO, FRAME and STOP
    return data[11:-1] if data[2:3] == b"\x95" else data[2:-1]


def request(function: Raw, *args: Any, **kwargs: Any) -> bytes:
    """The pickle of a PythonUDF."""
    return UDF + function.opcodes + opcodes(args) + opcodes(kwargs) + b"\x87\x81."
