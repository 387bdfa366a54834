"""Where in a pickle the parts of its value were written, so that a value can be shown with its bytes.

In: the bytes of a pickle that a reader has accepted, of either dialect. Out: a tree of ranges beside the
inert tree: whoever goes down in both compares how many parts there are, since a pickle may add to a value
wherever it likes. What comes from the memo is where it is fetched.
"""

from __future__ import annotations

from itertools import islice

from rpcinspect.errors import DecodeError
from rpcinspect.pickles.opcodes import opcode_places

MAX_OPCODES = 1 << 16
"""Of a pickle that is looked at: somebody waits for it."""

_MARK, _STOP = b"(."
_SKIPPED = frozenset(b"\x80\x95\x94pqr\x98")
"""PROTO, FRAME, MEMOIZE, PUT, BINPUT, LONG_BINPUT, READONLY_BUFFER."""
_TAKES = {
    **dict.fromkeys(b"\x85Q", 1),
    **dict.fromkeys(b"\x86\x81R\x93", 2),
    **dict.fromkeys(b"\x87\x92", 3),
}
"""TUPLE1, BINPERSID; TUPLE2, NEWOBJ, REDUCE, STACK_GLOBAL; TUPLE3, NEWOBJ_EX: values that become one."""
_TAKES_TO_MARK = frozenset(b"tld\x91io")
"""TUPLE, LIST, DICT, FROZENSET, INST, OBJ."""
_ADDS = {**dict.fromkeys(b"ab", 1), **dict.fromkeys(b"s", 2)}
"""APPEND, BUILD; SETITEM: values that the one below gets."""
_ADDS_TO_MARK = frozenset(b"eu\x90")
"""APPENDS, SETITEMS, ADDITEMS."""
_REFUSED = frozenset(b"012")
"""POP, POP_MARK, DUP: no pickler that torch uses writes them."""


class PickleSpan:
    """The range that writes a value, from its first opcode to its last, and those of its parts: items of a
    tuple or a list, keys and values of a dict in turn, function and arguments of a call."""

    __slots__ = ("end", "parts", "start")

    def __init__(self, start: int, end: int, parts: list[PickleSpan]) -> None:
        self.start = start
        self.end = end
        self.parts = parts

    def part(self, *numbers: int) -> PickleSpan | None:
        """Returns a part of a part; None where there is none."""
        found: PickleSpan | None = self
        for number in numbers:
            found = found.parts[number] if found is not None and number < len(found.parts) else None
        return found


def spans_of(data: bytes) -> PickleSpan | None:
    """The range of the value of a pickle; None where it is not told, as of a long one."""
    try:
        return _walk(data)
    except (IndexError, ValueError, DecodeError):
        return None


def _walk(data: bytes) -> PickleSpan | None:
    stack: list[PickleSpan] = []
    marks: list[tuple[int, int]] = []
    """How much was on the stack, and where the mark stands."""
    for begin, end in islice(opcode_places(data, len(data)), MAX_OPCODES):
        op = data[begin]
        if op in _SKIPPED:
            continue
        if op == _MARK:
            marks.append((len(stack), begin))
        elif op == _STOP:
            return stack[-1]
        elif op in _REFUSED:
            return None
        elif op in _TAKES or op in _TAKES_TO_MARK:
            depth, start = marks.pop() if op in _TAKES_TO_MARK else (len(stack) - _TAKES[op], -1)
            parts = _popped(stack, depth)
            stack.append(PickleSpan(parts[0].start if start < 0 else start, end, parts))
        elif op in _ADDS or op in _ADDS_TO_MARK:
            depth = marks.pop()[0] if op in _ADDS_TO_MARK else len(stack) - _ADDS[op]
            parts = _popped(stack, depth)
            stack[-1].parts += parts
            stack[-1].end = end
        else:
            stack.append(PickleSpan(begin, end, []))
    return None


def _popped(stack: list[PickleSpan], depth: int) -> list[PickleSpan]:
    if depth < 0:
        raise ValueError("a pickle takes what it has not made")
    parts = stack[depth:]
    del stack[depth:]
    return parts
