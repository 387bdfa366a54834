"""The integers of a Python pickle, each by its place: which is which, and the same pickle with others.

In: bytes of a pickle. Out: the pickle read symbolically, but each integer replaced by its own number, so that
whatever stands in the tree is known by the opcode that wrote it. `rewrite` gives the bytes with other
integers; all else stays as it was, except for the lengths of frames. Nothing is imported or called.

That only the integers of the two trees differ holds since opcodes take no number from the stack to go by:
memo indexes, lengths and extension codes are operands.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles.opcodes import FRAME, INTEGERS, integer, opcode_places
from rpcinspect.pickles.python import PythonPickle, read_python_pickle


class Numbered(Struct, frozen=True):
    """A pickle and its integers, counted from 0 in the order of its bytes."""

    data: bytes
    pickle: PythonPickle
    """As it is read, but each integer is its own number."""
    integers: tuple[int, ...]
    """What they are."""
    places: tuple[tuple[int, int], ...]
    """Where the opcode of each begins and ends."""
    frames: tuple[tuple[int, int], ...]
    """Where that which each FRAME holds begins and ends."""


def number_integers(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Numbered:
    """The integers of one pickle. Raises DecodeError (layer "pickle") where it can't be read."""
    plain = read_python_pickle(data, limits)  # what it accepts, the walk below can follow
    integers: list[int] = []
    where: list[tuple[int, int]] = []
    frames: list[tuple[int, int]] = []
    for begin, end in opcode_places(data, plain.end):
        if data[begin] == FRAME:
            frames.append((end, end + int.from_bytes(data[begin + 1 : end], "little")))
        elif data[begin] in INTEGERS:
            value = read_python_pickle(data[begin:end] + b".", limits).root
            if type(value) is int:  # by INT, protocol 0 writes True, too
                integers.append(value)
                where.append((begin, end))
    found = Numbered(data, plain, tuple(integers), tuple(where), tuple(frames))
    counted = rewrite(found, {number: number for number in range(len(integers))})
    return replace(found, pickle=read_python_pickle(counted, limits))


def rewrite(numbered: Numbered, changes: Mapping[int, int]) -> bytes:
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
    pieces = []
    pos = 0
    for begin, end, new in sorted(edits):
        pieces += [numbered.data[pos:begin], new]
        pos = end
    return b"".join([*pieces, numbered.data[pos:]])


FRAME_BYTES = 8
"""Of a frame's length."""
