"""The opcodes of pickles as bytes: their numbers, where each ends; the integers of a Python pickle by place.

In: bytes that a reader has accepted. Out: places of opcodes; and a pickle read symbolically, but each integer
replaced by its own number, so that whatever stands in the tree is known by the opcode that wrote it.
`rewrite` gives the bytes with other integers; all else stays as it was, except for the lengths of frames.
Nothing is imported or called. The readers' loops have the numbers of opcodes themselves, for speed.

That only the integers of the two trees differ holds since opcodes take no number from the stack to go by:
memo indexes, lengths and extension codes are operands.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.errors import DecodeError
from rpcinspect.pickles.python import PythonPickle, read_python_pickle

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


class NumberedPickle(Struct, frozen=True):
    """A pickle and the integers in it, counted from 0 in the order of the bytes."""

    data: bytes
    pickle: PythonPickle
    """As it is read, but each integer is its own number."""
    integers: tuple[int, ...]
    """What they are."""
    places: tuple[tuple[int, int], ...]
    """Where the opcode of each begins and ends."""
    frames: tuple[tuple[int, int], ...]
    """Where that which each FRAME holds begins and ends."""


def number_integers(data: bytes) -> NumberedPickle:
    """The integers of one pickle. Raises DecodeError (layer "pickle") where it can't be read."""
    plain = read_python_pickle(data)  # what it accepts, the walk below can follow
    integers: list[int] = []
    where: list[tuple[int, int]] = []
    frames: list[tuple[int, int]] = []
    for begin, end in opcode_places(data, plain.end):
        if data[begin] == FRAME:
            frames.append((end, end + int.from_bytes(data[begin + 1 : end], "little")))
        elif data[begin] in INTEGERS:
            value = read_python_pickle(data[begin:end] + b".").root
            if type(value) is int:  # by INT, protocol 0 writes True, too
                integers.append(value)
                where.append((begin, end))
    found = NumberedPickle(data, plain, tuple(integers), tuple(where), tuple(frames))
    counted = rewrite(found, {number: number for number in range(len(integers))})
    return replace(found, pickle=read_python_pickle(counted))


def rewrite(numbered: NumberedPickle, changes: Mapping[int, int]) -> bytes:
    """The pickle with other integers, by their numbers; those that change are written as CPython writes them.

    Raises DecodeError (layer "pickle") where a frame ends inside one of them.
    """
    changed = [n for n in sorted(changes) if numbered.integers[n] != changes[n]]
    edits = [(*numbered.places[n], integer(changes[n])) for n in changed]
    begins, ends = [begin for begin, _, _ in edits], [end for _, end, _ in edits]
    grown = [0, *accumulate(len(new) - (end - begin) for begin, end, new in edits)]  # by the first n edits

    def moved(pos: int) -> int:
        done = bisect_right(ends, pos)
        if done < len(begins) and begins[done] < pos:
            raise DecodeError("pickle", "a frame ends inside an integer", pos)
        return pos + grown[done]

    for begin, end in numbered.frames:
        length = moved(end) - moved(begin)
        edits.append((begin - FRAME_BYTES, begin, length.to_bytes(FRAME_BYTES, "little")))
    return replaced(numbered.data, sorted(edits))


def replaced(data: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Returns the bytes with others in place of some ranges: (begin, end, what stands there), in order."""
    pieces = []
    pos = 0
    for begin, end, new in edits:
        pieces += [data[pos:begin], new]
        pos = end
    return b"".join([*pieces, data[pos:]])


FRAME_BYTES = 8
"""Of a frame's length."""
