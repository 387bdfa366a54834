"""The opcodes of the Python dialect that are rare in rpc's messages.

Each function takes the state with `pos` behind the opcode, and leaves it behind the operands. Reads past the
end, stack underflow and the like surface as Python's own exceptions, which `python` turns into DecodeError.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct

from rpcinspect.late_pattern import late
from rpcinspect.pickles.python_state import NO_FRAME, State, changeable, extend, set_items
from rpcinspect.pickles.tree import (
    Buffer,
    Dict,
    Extension,
    PersistentRef,
    Set,
    Value,
)

# Opcodes, by what they leave on the stack.


def _proto(state: State) -> None:
    state.protocol = state.data[state.pos]
    if state.protocol > 5:
        raise ValueError(f"protocol {state.protocol} is not known")
    state.names.clear()  # it may come late, or twice: what a name means depends on it
    state.pos += 1


def _frame(state: State) -> None:
    size = state.number(_U64)
    end = state.pos + size
    if end > min(len(state.data), state.frame_end):
        raise ValueError(f"a frame of {size} bytes, {len(state.data) - state.pos} are left")
    if state.frame_end == NO_FRAME and size:
        state.frame_end = end


def _pop(state: State) -> None:
    if state.marks and state.marks[-1] == len(state.stack):
        state.marks.pop()
    else:
        state.stack.pop()


def _pop_mark(state: State) -> None:
    state.above_mark()


def _global(state: State) -> None:
    module, name = state.line().decode(), state.line().decode()
    state.stack.append(state.name(module, name))


def _inst(state: State) -> None:
    module, name = state.line().decode(), state.line().decode()
    function = state.name(module, name)
    state.stack.append(state.call(function, tuple(state.above_mark()), "inst"))


def _obj(state: State) -> None:
    function, *args = state.above_mark() or [None]
    if function is None:
        raise ValueError("no class for an object")
    state.stack.append(state.call(function, tuple(args), "obj"))


def _newobj_ex(state: State) -> None:
    kwargs, args, function = state.stack.pop(), state.stack.pop(), state.stack.pop()
    state.stack.append(state.call(function, args, "newobj_ex", kwargs))


def _extension(size: int) -> Callable[[State], None]:
    def read(state: State) -> None:
        code = int.from_bytes(state.take(size), "little", signed=size == 4)
        if code <= 0:
            raise ValueError(f"extension code {code}")
        state.extensions.append(code)
        state.stack.append(Extension(code))

    return read


def _persid(state: State) -> None:
    state.stack.append(PersistentRef(state.line().decode("ascii", "backslashreplace")))


def _int(state: State) -> None:
    text = state.digits()
    state.stack.append(text == b"01" if text in (b"00", b"01") else _digits(text or b"0"))


def _long(state: State) -> None:
    text = state.digits()
    state.stack.append(_digits(text.removesuffix(b"L")) if text else 0)


def _digits(text: bytes) -> int:
    """As int(text, 0), with C's octal; Python itself refuses longer decimals, which cost quadratic time."""
    if len(text) > 4300 and text.lstrip(b"+-")[:2].lower() not in (b"0x", b"0b", b"0o"):
        raise ValueError("an integer of more than 4,300 digits")
    try:
        return int(text, 0)
    except ValueError:
        return int(text, 8)


def _index(text: bytes) -> int:
    if len(text) > 4300:
        raise ValueError("a memo index of more than 4,300 digits")
    return int(text)


def _float(state: State) -> None:
    state.stack.append(float(state.digits()))


def _string(state: State) -> None:
    text = state.line()
    if len(text) < 2 or text[:1] not in (b"'", b'"') or text[:1] != text[-1:]:
        raise ValueError("a string without quotes")
    state.stack.append(_ascii(_ESCAPE.sub(_unescape, text[1:-1])))


def _unescape(found: re.Match[bytes]) -> bytes:
    text = found[1]
    if text[:1] == b"x":
        return bytes((int(text[1:], 16),))
    if text[:1].isdigit():
        return bytes((int(text, 8) & 255,))
    return _ESCAPES[text]


def _ascii(raw: bytes) -> str | bytes:
    """Python 2's str: text where it is ASCII, as `pickle.loads` has it by default."""
    return raw.decode("ascii") if raw.isascii() else raw


def _unicode(state: State) -> None:
    state.stack.append(state.line().decode("raw-unicode-escape"))


def _setitem(state: State) -> None:
    value, key = state.stack.pop(), state.stack.pop()
    state.stack[-1] = set_items(state, state.stack[-1], [key, value])


def _append(state: State) -> None:
    item = state.stack.pop()
    state.stack[-1] = extend(state, state.stack[-1], [item])


def _additems(state: State) -> None:
    items = state.above_mark()
    target = state.stack[-1]
    if type(target) is Set and not target.frozen:
        target.items.extend(items)
        state.order.note(target, len(state.calls))
    else:
        state.stack[-1] = extend(state, changeable(state, target), items)


def _frozenset(state: State) -> None:
    made = Set(state.above_mark(), frozen=True)
    state.order.note(made, len(state.calls))
    state.stack.append(made)


def _dict(state: State) -> None:
    state.stack.append(set_items(state, Dict(), state.above_mark()))


def _next_buffer(state: State) -> None:
    state.stack.append(Buffer(state.buffers))
    state.buffers += 1


def _readonly_buffer(state: State) -> None:
    top = state.stack[-1]
    if type(top) not in (Buffer, bytes):  # a memoryview of it, or an exception: no pickler writes that
        state.stack[-1] = state.call(top, (), "change")


def _counted(size: Struct, make: Callable[[bytes], Value]) -> Callable[[State], None]:
    """Opcodes with a byte count and that many bytes."""

    def read(state: State) -> None:
        state.stack.append(make(state.take(state.number(size))))

    return read


def _memo(size: Struct, *, put: bool) -> Callable[[State], None]:
    def read(state: State) -> None:
        index = state.number(size)
        if put:
            state.put(index)
        else:
            state.stack.append(state.memo[index])

    return read


def _utf8(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


_U8, _U32, _I32, _U64 = Struct("<B"), Struct("<I"), Struct("<i"), Struct("<Q")

_ESCAPE = late(rb"\\(\n|[\\'\"abfnrtv]|[0-7]{1,3}|x[0-9a-fA-F]{2})", re.DOTALL)
_ESCAPES = {
    b"\n": b"",
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}

OPCODES: dict[int, Callable[[State], None]] = {
    # protocol 0: text
    ord("0"): _pop,
    ord("1"): _pop_mark,
    ord("2"): lambda state: state.stack.append(state.stack[-1]),
    ord("F"): _float,
    ord("I"): _int,
    ord("L"): _long,
    ord("S"): _string,
    ord("V"): _unicode,
    ord("P"): _persid,
    ord("a"): _append,
    ord("s"): _setitem,
    ord("c"): _global,
    ord("d"): _dict,
    ord("l"): lambda state: state.stack.append(state.above_mark()),
    ord("g"): lambda state: state.stack.append(state.memo[_index(state.digits())]),
    ord("p"): lambda state: state.put(_index(state.digits())),
    ord("i"): _inst,
    # protocol 1: binary
    ord("J"): lambda state: state.stack.append(state.number(_I32)),
    ord("T"): _counted(_I32, _ascii),
    ord("U"): _counted(_U8, _ascii),
    ord("Q"): lambda state: state.stack.append(PersistentRef(state.stack.pop())),
    ord("j"): _memo(_U32, put=False),
    ord("r"): _memo(_U32, put=True),
    ord("o"): _obj,
    # protocol 2
    0x80: _proto,
    0x82: _extension(1),
    0x83: _extension(2),
    0x84: _extension(4),
    0x8A: _counted(_U8, _little),
    0x8B: _counted(_I32, _little),
    # protocol 3
    ord("B"): _counted(_U32, bytes),
    ord("C"): _counted(_U8, bytes),
    # protocol 4
    0x8D: _counted(_U64, _utf8),
    0x8E: _counted(_U64, bytes),
    0x8F: lambda state: state.stack.append(Set()),
    0x90: _additems,
    0x91: _frozenset,
    0x92: _newobj_ex,
    0x95: _frame,
    # protocol 5
    0x96: _counted(_U64, bytearray),
    0x97: _next_buffer,
    0x98: _readonly_buffer,
}
"""What is not in the loop of `python`; together they are all opcodes of protocols 0 to 5."""
