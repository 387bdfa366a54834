"""What calls are given and what their answers hold, as far as it takes to compare them.

In: records as they become complete. Out: by row, numbers that are equal for equal requests, and of each
answer whether it holds anything, with marks of the names and numbers in it. Nothing of the values is kept.
What was not captured whole, or could not be read, has neither.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from enum import IntEnum

from rpcinspect.pickles.semantic import beside_fork, tensor_reference
from rpcinspect.pickles.tree import SCALARS, Dict, Global, Set, Value, children
from rpcinspect.rpc.callee import PROXIES, REMOTE_FORWARD
from rpcinspect.rpc.command import PythonCall, ScriptCall
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import result_of, size_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.provenance import LEAST_BYTES, MessageKind, Provenance, marks_of
from rpcinspect.tcp.ranges import CaptureBytes

MAX_NODES = 1 << 12
"""Of the arguments of a call with an RRef; one with more is like no other."""
TABLE = 3
"""The payload with the tensors' shapes."""
UNKNOWN = 0


class Holds(IntEnum):
    """Kinds of results of answers: nothing, something, or a bool."""

    NOTHING = 1
    """None, or an empty tuple, list, dict, set or tensor."""
    SOMETHING = 2
    TRUTH = 3
    """True or False, by which a caller may decide what comes next."""


class CallContents:
    """`feed` requests and answers; then ask."""

    def __init__(self, source: CaptureBytes) -> None:
        """`source`: where short tensors are read."""
        self._source = source
        self._requests = tuple(array("q") for _ in range(4))
        """(row, digest or UNKNOWN, storages that have a mark in the provenance, bytes)."""
        self._answers = (array("q"), array("b"))
        """(row, what it holds)."""
        self._marks = (array("q"), array("q"))
        """(row of an answer, mark)."""

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        """Takes one message. Returns False for one that is neither a call nor the answer to a call."""
        if not self._wants(record, kind):
            return False
        if kind.type in CALLED:
            number, marked = _digest(record, self._source) if kind.whole else (UNKNOWN, 0)
            parts = record.row, number, marked, size_of(record)
            for column, part in zip(self._requests, parts, strict=True):
                column.append(part)
        else:
            holds, marks = _held(record)
            self._answers[0].append(record.row)
            self._answers[1].append(holds)
            self._marks[0].extend([record.row] * len(marks))
            self._marks[1].extend(marks)
        return True

    @property
    def any_empty(self) -> bool:
        """Returns whether the result of any answer is `NOTHING`."""
        return Holds.NOTHING in self._answers[1]

    def holds(self) -> dict[int, int]:
        """Row of an answer → what it holds."""
        return dict(zip(*self._answers, strict=True))

    @staticmethod
    def _wants(record: RpcRecord, kind: MessageKind) -> bool:
        """Returns whether a message is a call or the answer to one."""
        if kind.type in CALLED:
            return not record.facts.control and is_programs(kind.function)
        return kind.type in RETURNED and kind.whole and not kind.failed

    def calls(self) -> dict[int, int]:
        """Row of a call of the program's own → bytes of the request."""
        rows, _, _, sizes = self._requests
        return dict(zip(rows, sizes, strict=True))

    def marks(self, rows: Collection[int]) -> dict[int, set[int]]:
        """Marks of the names and numbers in these answers, as `provenance.mark_of` makes them."""
        found: dict[int, set[int]] = {row: set() for row in rows}
        for row, mark in zip(*self._marks, strict=True):
            if row in found:
                found[row].add(mark)
        return found

    def given(self, rows: Collection[int], provenance: Provenance) -> dict[int, int]:
        """Returns call → a number that is equal for equal calls: of one function with the same arguments,
        other than RRefs. Calls of which that is not certain have none."""
        tensors, opaque = provenance.tensors(rows), set(provenance.opaque(rows))
        found = {}
        for row, digest, marked, _ in zip(*self._requests, strict=True):
            if row in tensors and digest != UNKNOWN and row not in opaque and len(tensors[row]) == marked:
                found[row] = hash((digest, tensors[row]))
        return found


def is_programs(function: str | None) -> bool:
    """Returns whether a function is the program's own, not one that torch calls by itself."""
    name = "" if function is None else function.removeprefix("__torch__.")
    return bool(name) and (not name.startswith(TORCH) or name in THROUGH)


def _digest(record: RpcRecord, source: CaptureBytes) -> tuple[int, int]:
    """Returns a number for a request's content without RRefs and longer tensors, and how many longer tensors
    there are."""
    command, facts, tp = record.like.command, record.facts, record.tp
    parts: list[object] = [tp.payloads[TABLE]]
    if isinstance(command, ScriptCall):
        parts += [command.function, *_plain(command.args)]
    elif facts.forks and isinstance(command, PythonCall):
        if facts.pickle is None or facts.pickle.error is not None:
            return UNKNOWN, 0
        parts += _plain(facts.pickle.root)
    elif isinstance(command, PythonCall):
        parts.append(command.serialized_py_obj)
    if len(parts) > MAX_NODES:
        return UNKNOWN, 0
    marked = 0
    for tensor in tp.tensors:
        if tensor.extent is None or tensor.extent.missing:
            return UNKNOWN, 0
        if tensor.extent.length < LEAST_BYTES:
            parts.append(tensor.extent.read(source))
        else:
            marked += 1
    return hash(tuple(parts)) or 1, marked


def _plain(root: Value) -> Iterable[object]:
    """Returns the nodes of a pickle's tree without the numbers of RRefs: equal for equal trees only."""
    stack, seen = [root], dict[int, int]()
    parts: list[object] = []
    while stack and len(parts) <= MAX_NODES:
        node = stack.pop()
        kind = type(node)
        if kind in SCALARS or kind is Global:
            parts += (kind, bytes(node) if kind is bytearray else node)
        elif id(node) in seen:
            parts.append(seen[id(node)])
        else:
            seen[id(node)] = len(seen)
            its = list(beside_fork(node))
            parts += (kind, len(its))
            stack.extend(reversed(its))
    return parts


def _held(record: RpcRecord) -> tuple[int, tuple[int, ...]]:
    """Returns the `Holds` of an answer's result, and the marks of its tensors and values."""
    value = result_of(record)
    if type(value) is bool:
        return Holds.TRUTH, ()
    reference = tensor_reference(value)
    if reference is not None:
        whole = [meta for meta in record.like.tensors if meta.part_of is None]
        empty = 0 <= reference < len(whole) and whole[reference].layout == "strided"
        empty = empty and 0 in whole[reference].sizes
        return Holds.NOTHING if empty else Holds.SOMETHING, ()
    if value is None or (type(value) in EMPTY and not list(children(value))):
        return Holds.NOTHING, ()
    return Holds.SOMETHING, marks_of([value])


CALLED = (MessageType.PYTHON_CALL, MessageType.SCRIPT_CALL)
RETURNED = (MessageType.PYTHON_RET, MessageType.SCRIPT_RET)
EMPTY = (tuple, list, Dict, Set)
TORCH = "torch.distributed."
THROUGH = frozenset(map(str, (*PROXIES, REMOTE_FORWARD)))
"""Functions of torch by which a program calls those of its own objects."""
