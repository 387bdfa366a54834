"""numpy's own pickles, without numpy: what arrays, scalars and dtypes in the inert tree say, and whether
numpy has written them so.

In: nodes. Out: of `array`, `scalar` and `dtype` the parts, None for what is something else. The rules for
`shapes` (`dtype_args`, `array_state`, …) give what is wrong, "" for nothing: numpy takes sizes, flags and
fields of a state on trust, so that they must be exactly what `dtype.__reduce__` writes for the arguments
before them. Mirrors the reducers in numpy/_core/src/multiarray (descriptor.c, methods.c, scalarapi.c).
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from rpcinspect.late_pattern import late
from rpcinspect.pickles.safe_names import ADDRESSES
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Value


class Array(NamedTuple):
    """A pickled numpy array."""

    shape: Value
    dtype: Value
    data: Value
    """Bytes, in every honest pickle of numbers."""
    fortran: bool


def array(node: PickleCall) -> Array | None:
    """The parts of a pickled numpy array, of either of numpy's ways to write one."""
    args, state = node.args, node.state
    if node.function in RECONSTRUCT and type(state) is tuple and len(state) == 5:
        return Array(state[1], state[2], raw_bytes(state[4]), state[3] in (True, "F"))
    if node.function in FROMBUFFER and type(args) is tuple and len(args) == 4:
        return Array(args[2], args[1], raw_bytes(args[0]), args[3] in (True, "F"))
    return None


def raw_bytes(node: Value) -> Value:
    """The bytes in `_codecs.encode(text, 'latin1')`; any other value as it is."""
    found = bytes_of(node) if type(node) is PickleCall and node.function == ENCODE else None
    return node if found is None else found


def dtype(node: Value) -> str | None:
    """`<f4` and the like of a pickled numpy dtype: the kind is an argument, the byte order comes by BUILD."""
    if type(node) is not PickleCall or node.function != DTYPE or type(node.args) is not tuple:
        return None
    if not node.args or type(node.args[0]) is not str:
        return None
    order = node.state[1] if type(node.state) is tuple and len(node.state) > 1 else "|"
    return (order if order in ("<", ">", "=", "|") else "|") + node.args[0]


def scalar(node: PickleCall) -> tuple[str, Value] | None:
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

# --- as numpy writes them ---------------------------------------------------------------------------------

ARGS = "with arguments that its own pickling never writes"
FORGED = "a state forged for it"
NDARRAY = Global("numpy", "ndarray")
_KIND = late(r"([biufcmMSUVO])(\d{1,9})", re.ASCII)
_NATIVE = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 16),
    "c": (8, 16, 32),
    "m": (8,),
    "M": (8,),
}
"""Letter of a kind → bytes that an element may have."""
_UNITS = frozenset(b"Y M W D h m s ms us ns ps fs as generic".split())


def bytes_of(value: Value) -> bytes | None:
    """Bytes, also as protocols 0 to 2 write them; None for everything else."""
    if type(value) is PickleCall and value.function == Global("builtins", "bytes") and value.args == ():
        return b""
    if type(value) is PickleCall and value.function == ENCODE and type(value.args) is tuple:
        text = value.args[0] if len(value.args) == 2 and latin1(value.args[1]) else None
        return text.encode("latin-1", "replace") if type(text) is str else None
    return bytes(value) if type(value) in (bytes, bytearray) else None


def is_raw(value: Value) -> bool:
    return bytes_of(value) is not None


def ints(value: Value) -> bool:
    """Whether a value is a tuple of sizes that can be counted."""
    return type(value) is tuple and all(type(part) is int and 0 <= part < 1 << 63 for part in value)


def elements(shape: tuple[int, ...]) -> int:
    """How many elements a shape has; at most 2^63, which no data has."""
    count = 0 if 0 in shape else 1
    for size in shape:
        count = min(count * size, 1 << 63)
    return count


def latin1(value: Value) -> bool:
    return value in ("latin1", "latin-1") and type(value) is str


def dtype_args(call: PickleCall) -> str:
    args = call.args
    if len(args) == 3 and type(args[0]) is str and args[1:] in ((False, True), (0, 1)):
        kind = _KIND.fullmatch(args[0])
        if kind is not None and (kind[1] not in _NATIVE or int(kind[2]) in _NATIVE[kind[1]]):
            return ""
    return ARGS


def dtype_state(call: PickleCall) -> str:
    """What `dtype.__reduce__` writes for exactly these arguments: numpy takes sizes and flags on trust."""
    kind = _KIND.fullmatch(call.args[0])
    state, reason = call.state, FORGED
    if kind is None or type(state) is not tuple or len(state) not in (8, 9) or not _order(state[1]):
        return reason
    version, order, subarray, names, fields, size, alignment, flags = state[:8]
    letter, width = kind[1], int(kind[2])
    if any(type(part) is not int for part in (version, size, alignment, flags)):
        return reason
    if letter in "mM":
        plain = (version, size, alignment, flags) == (4, -1, -1, 0) and len(state) == 9 and _unit(state[8])
    elif version != 3 or len(state) != 8:
        return reason
    elif letter == "O":
        plain = order == "|" and (width, size, alignment, flags) == (8, -1, -1, 63)
    elif letter == "S":
        plain = (size, alignment, flags) == (width, 1, 0)
    elif letter == "U":
        plain = (size, alignment, flags) == (width * 4, 4, 8)
    elif letter == "V":
        return "" if _void(width, subarray, names, fields, size, alignment, flags) else reason
    else:
        plain = (size, alignment, flags) == (-1, -1, 0)
    return "" if plain and (subarray, names, fields) == (None, None, None) else reason


def _order(value: Value) -> bool:
    return type(value) is str and value in ("<", ">", "|", "=")


def _unit(value: Value) -> bool:
    """(metadata, (unit, count, 1, 1)) of datetimes."""
    return (
        type(value) is tuple
        and len(value) == 2
        and (value[0] is None or (type(value[0]) is Dict and not value[0].pairs))
        and type(value[1]) is tuple
        and len(value[1]) == 4
        and bytes_of(value[1][0]) in _UNITS
        and all(type(number) is int and 0 < number < 1 << 31 for number in value[1][1:])
    )


def _void(
    width: int, subarray: Value, names: Value, fields: Value, size: int, alignment: int, flags: int
) -> bool:
    """Raw bytes, or a record whose fields lie inside of it and hold no Python objects."""
    if size != width or alignment not in (1, 2, 4, 8, 16) or flags not in (0, 16, 128, 144):
        return False
    if names is None or fields is None:
        return (subarray, names, fields, flags) == (None, None, None, 0)
    if subarray is not None or type(names) is not tuple or type(fields) is not Dict:
        return False
    known = dict(fields.pairs) if all(type(key) is str for key, _ in fields.pairs) else {}
    if (
        not all(type(name) is str for name in names)
        or set(known) != set(names)
        or len(fields.pairs) != len(names)
    ):
        return False
    end = 0
    for name in names:
        field = known[name]
        if type(field) is not tuple or len(field) != 2 or type(field[1]) is not int:
            return False
        item = item_bytes(field[0])
        if item is None or field[1] < end or field[1] + item > width:
            return False
        end = field[1] + item
    return True


def _is_dtype(node: Value) -> bool:
    """Whether a node is a dtype as numpy writes it."""
    if type(node) is not PickleCall or node.function != DTYPE or type(node.args) is not tuple:
        return False
    return not dtype_args(node) and not (node.has_state and dtype_state(node))


def item_bytes(dtype: Value) -> int | None:
    """Bytes of an element of a dtype that holds no Python objects; None for everything else."""
    kind = _KIND.fullmatch(dtype.args[0]) if _is_dtype(dtype) else None
    if kind is None or kind[1] == "O":
        return None
    return int(kind[2]) * (4 if kind[1] == "U" else 1)


def _is_object(node: Value) -> bool:
    return _is_dtype(node) and bool(node.args[0] == "O8")


def array_state(call: PickleCall) -> str:
    """Checks (version, shape, dtype, Fortran order, data): as many bytes, or objects, as the shape needs."""
    state, reason = call.state, FORGED
    if type(state) is not tuple or len(state) != 5 or state[0] != 1 or type(state[3]) not in (bool, int):
        return reason
    shape, dtype, data = state[1], state[2], state[4]
    if not ints(shape) or len(shape) > 64:
        return reason
    count, item = elements(shape), item_bytes(dtype)
    if item is None:
        whole = _is_object(dtype) and type(data) is list and len(data) == count
    else:
        raw = bytes_of(data)
        whole = raw is not None and len(raw) == count * item and not _endless(count, item)
    return "" if whole else reason


def _endless(count: int, item: int) -> bool:
    """Elements without bytes: any number of them would fit; numpy itself gives each text at least one."""
    return item == 0 and count > 1


def scalar_args(call: PickleCall) -> str:
    args = call.args
    item = item_bytes(args[0]) if len(args) == 2 else None
    raw = bytes_of(args[1]) if item is not None else None
    if raw is None or len(raw) != item:
        return ARGS
    if raw.replace(b"\0", b"").decode("latin-1") in ADDRESSES:
        return "it is a text, whose user takes its content for an address"
    return ""


def reconstruct_args(call: PickleCall) -> str:
    """Checks the arguments that make an array without elements, of a one-letter type; the state fills the
    array."""
    args = call.args
    letter = (bytes_of(args[2]) or args[2]) if len(args) == 3 else b""
    plain = type(letter) in (bytes, str) and len(letter) == 1 and not letter.isdigit()
    if args[:2] == (NDARRAY, (0,)) and plain:  # a digit numpy would give to Python's parser
        return ""
    return ARGS


def frombuffer_args(call: PickleCall) -> str:
    args = call.args
    if len(args) == 4 and type(args[0]) in (bytes, bytearray) and ints(args[2]) and args[3] in ("C", "F"):
        item = item_bytes(args[1])
        count = elements(args[2])
        if item is not None and len(args[0]) == count * item and not _endless(count, item):
            return ""
    return ARGS
