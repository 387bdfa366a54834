"""What numpy's pickles say, without numpy: arrays, scalars and dtypes as nodes of the inert tree.

Mirrors the reducers in numpy/_core/src/multiarray (descriptor.c, methods.c, scalarapi.c). Every function
answers None for what is something else.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from rpcinspect.pickles.tree import Call, Global, Value


class Array(NamedTuple):
    """A pickled numpy array."""

    shape: Value
    dtype: Value
    data: Value
    """Bytes, in every honest pickle of numbers."""
    fortran: bool


def array(node: Call) -> Array | None:
    """The parts of a pickled numpy array, of either of numpy's ways to write one."""
    args, state = node.args, node.state
    if node.function in RECONSTRUCT and type(state) is tuple and len(state) == 5:
        return Array(state[1], state[2], raw_bytes(state[4]), state[3] in (True, "F"))
    if node.function in FROMBUFFER and type(args) is tuple and len(args) == 4:
        return Array(args[2], args[1], raw_bytes(args[0]), args[3] in (True, "F"))
    return None


def raw_bytes(node: Value) -> Value:
    """The bytes in `_codecs.encode(text, 'latin1')`; any other value as it is."""
    if type(node) is not Call or node.function != ENCODE or type(node.args) is not tuple:
        return node
    if len(node.args) != 2 or type(node.args[0]) is not str or node.args[1] != "latin1":
        return node
    return node.args[0].encode("latin-1", "backslashreplace")


def dtype(node: Value) -> str | None:
    """`<f4` and the like of a pickled numpy dtype: the kind is an argument, the byte order comes by BUILD."""
    if type(node) is not Call or node.function != DTYPE or type(node.args) is not tuple:
        return None
    if not node.args or type(node.args[0]) is not str:
        return None
    order = node.state[1] if type(node.state) is tuple and len(node.state) > 1 else "|"
    return (order if order in ("<", ">", "=", "|") else "|") + node.args[0]


def scalar(node: Call) -> tuple[str, Value] | None:
    """(name of the type, value) of a numpy scalar; of types without a plain value the bytes."""
    args = node.args
    if node.function not in SCALAR or type(args) is not tuple or len(args) != 2:
        return None
    code, raw = dtype(args[0]), raw_bytes(args[1])
    if code is None or code[1:] not in _PLAIN:
        return "scalar", raw
    name, layout = _PLAIN[code[1:]]
    if type(raw) is bytes and struct.calcsize("<" + layout) == len(raw):
        return name, struct.unpack((">" if code[0] == ">" else "<") + layout, raw)[0]
    return name, raw


def _globals(name: str, *modules: str) -> tuple[Global, ...]:
    return tuple(Global(module, name) for module in modules)


ENCODE = Global("_codecs", "encode")
DTYPE = Global("numpy", "dtype")
RECONSTRUCT = _globals("_reconstruct", "numpy.core.multiarray", "numpy._core.multiarray")
FROMBUFFER = _globals("_frombuffer", "numpy.core.numeric", "numpy._core.numeric")
SCALAR = _globals("scalar", "numpy.core.multiarray", "numpy._core.multiarray")

_PLAIN = {
    "f2": ("float16", "e"),
    "f4": ("float32", "f"),
    "f8": ("float64", "d"),
    "i1": ("int8", "b"),
    "i2": ("int16", "h"),
    "i4": ("int32", "i"),
    "i8": ("int64", "q"),
    "u1": ("uint8", "B"),
    "u2": ("uint16", "H"),
    "u4": ("uint32", "I"),
    "u8": ("uint64", "Q"),
    "b1": ("bool_", "?"),
}
"""Kind and size -> name of the type, and its letter in `struct`."""
