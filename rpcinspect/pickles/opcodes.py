"""The opcodes of pickles as bytes: their numbers, where each ends, and how an integer is written.

In: bytes that a reader has accepted. Out: places of opcodes. The readers' loops have the numbers themselves,
for speed.
"""

from __future__ import annotations

from collections.abc import Iterator

MARK, STOP, NONE, REDUCE, BUILD, GLOBAL = b"(.NRbc"
BININT, BININT1, BININT2, LONG1, BINFLOAT = b"JKM\x8aG"
BINUNICODE, BINUNICODE8 = b"X\x8d"
NEWTRUE, NEWFALSE, NEWOBJ, BINPERSID = b"\x88\x89\x81Q"
EMPTY_TUPLE, TUPLE, TUPLE1, TUPLE2, TUPLE3 = b")t\x85\x86\x87"
EMPTY_LIST, LIST, APPEND, APPENDS = b"]lae"
EMPTY_DICT, DICT, SETITEMS = b"}du"
BINPUT, LONG_BINPUT, BINGET, LONG_BINGET = b"qrhj"
FRAME = 0x95

ATOMS = b"JKM\x8aGN\x88\x89"
"""BININT, BININT1, BININT2, LONG1, BINFLOAT, NONE, NEWTRUE, NEWFALSE: what makes values without parts."""
INTEGERS = frozenset(b"IJKLM\x8a\x8b")
"""INT, BININT, BININT1, LONG, BININT2, LONG1, LONG4."""

FIXED = {
    **dict.fromkeys(b"Khq\x82\x80", 1),
    **dict.fromkeys(b"M\x83", 2),
    **dict.fromkeys(b"Jjr\x84", 4),
    **dict.fromkeys(b"G\x95", 8),
}
"""Opcodes → bytes of their operand."""

COUNTED = {
    **dict.fromkeys(b"\x8aUC\x8c", 1),
    **dict.fromkeys(b"\x8bTBX", 4),
    **dict.fromkeys(b"\x8e\x96\x8d", 8),
}
"""Opcodes → bytes of the count of bytes that follow it."""

LINES = {**dict.fromkeys(b"IgpLSVFP", 1), **dict.fromkeys(b"ci", 2)}
"""Opcodes → lines of text that follow them; any other opcode stands alone."""


def opcode_places(data: bytes, end: int) -> Iterator[tuple[int, int]]:
    """Where each opcode before `end` begins and ends, with its operand."""
    pos = 0
    while pos < end:
        after = _end(data, pos)
        yield pos, after
        pos = after


def _end(data: bytes, pos: int) -> int:
    op = data[pos]
    pos += 1
    width = COUNTED.get(op)
    if width is not None:
        return pos + width + int.from_bytes(data[pos : pos + width], "little")
    for _ in range(LINES.get(op, 0)):
        pos = data.index(10, pos) + 1
    return pos + FIXED.get(op, 0)


def integer(value: int) -> bytes:
    """The opcode that pushes an integer, as CPython writes it from protocol 2 on."""
    if 0 <= value < 1 << 8:
        return b"K" + value.to_bytes(1, "little")
    if 0 <= value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if -1 << 31 <= value < 1 << 31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    if size >= 1 << 8:
        return b"\x8b" + size.to_bytes(4, "little") + value.to_bytes(size, "little", signed=True)
    return b"\x8a" + size.to_bytes(1, "little") + value.to_bytes(size, "little", signed=True)
