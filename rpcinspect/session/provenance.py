"""What each message says of what it needs and brings: the one index from which causes and RRefs are told.

In: records as they become complete. Out: columns, a few bytes a message: what kind of request it is, which
RRefs and forks it makes, brings, fetches or deletes, and marks of the values and tensors that it carries. A
mark is a number that is equal for equal values; nothing of the values themselves is kept.

Kinds of messages repeat, so that a message has the number of its kind; of a pattern everything is known once.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from rpcinspect.pickles.semantic import remote_module, rref_fork, tensor_reference
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Value, children
from rpcinspect.rpc.callee import Callee, callee_of, maker_of
from rpcinspect.rpc.command import (
    PythonRemoteCall,
    PythonRRefFetchCall,
    RemoteRet,
    RRefBackwardReq,
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
    ScriptRemoteCall,
    ScriptRRefFetchCall,
)
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.rpc.patterns import Pattern
from rpcinspect.rpc.pickle_facts import SCRIPT
from rpcinspect.rpc.questions import CALLS, context_of, failed, function_of, is_builtin, python_udf_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.tcp.ranges import CaptureBytes, Extent

Id = tuple[int, int]
NONE = -1
AUTOGRAD = frozenset({MessageType.FORWARD_AUTOGRAD_REQ, MessageType.FORWARD_AUTOGRAD_RESP})

MAX_NODES = 256
"""Of a request's arguments that are looked at for values."""
MAX_NAME = 200
"""Of a function's name that is told; captured names may be of any length."""
MAX_MARKS = 16
"""Values, and tensors, of one message that are kept."""
SAMPLE = 1 << 12
"""Bytes of a tensor that its mark is made of: of a longer one its beginning, its middle and its end."""
LEAST_BYTES = 8
"""A shorter tensor, or one whose bytes are all equal, tells nothing of where it came from."""


class What(IntEnum):
    """What a message does to an RRef or a fork."""

    MADE = 0
    """A remote call makes the RRef and its first fork."""
    CONFIRMED = 1
    """The owner's answer to that."""
    BROUGHT = 2
    """A pickle brings the fork to the receiver."""
    REQUESTED = 3
    """RREF_FORK_REQUEST: the fork's holder tells the owner."""
    ACCEPTED = 4
    """RREF_CHILD_ACCEPT: it tells the one who gave it; the RRef is not named."""
    DELETED = 5
    FETCHED = 6
    DIFFERENTIATED = 7
    """RREF_BACKWARD_REQ."""


OF_HOLDERS = frozenset({What.REQUESTED, What.ACCEPTED, What.DELETED})
"""What the holder of a fork sends about it."""


class MessageKind(Struct, frozen=True):
    """What all messages of a kind have in common."""

    type: int
    """Message type of the command, envelopes off."""
    function: str | None = None
    builtin: bool = False
    asynchronous: bool = False
    """The function is decorated with async_execution: it goes on after it has returned."""
    envelopes: tuple[int, ...] = ()
    """Types of these, outermost first."""
    grads: int = 0
    """How many of its own tensors require grad."""
    elsewhere: bool = False
    """One of its tensors is not on the CPU."""
    whole: bool = True
    """All of it was captured and could be read."""
    callee: Callee | None = None
    """Who is called, as far as a request says it."""
    maker: Global | None = None
    """What makes the object whose RRef the request makes, or gets as its answer."""
    failed: bool = False
    """It is an answer that reports an error."""
    value: Global | None = None
    """Of an answer: the class or function that it names, and nothing else."""
    marks: tuple[int, ...] = ()
    """Of the values, where all messages of the kind have the same ones."""

    @property
    def autograd(self) -> bool:
        """Returns whether there is an autograd envelope."""
        return not AUTOGRAD.isdisjoint(self.envelopes)

    @property
    def what(self) -> str:
        """Returns the function that a request calls, else the name of the type."""
        return (self.function or type_name(self.type))[:MAX_NAME]


class Event(NamedTuple):
    """What a message does to an RRef."""

    what: What
    row: int
    rref: Id
    fork: Id
    owner: int
    """The owner's worker id, where the message tells it; else -1."""


class Provenance:
    """The stage: `feed` every record in the order of rows; it is complete once all were fed."""

    def __init__(self, source: CaptureBytes | None = None) -> None:
        """`source`: where the tensors of calls and answers are read; without it tensors have no marks."""
        self._source = source
        self.kinds: list[MessageKind] = []
        self.kind = array("i")
        """Of each row, its place in `kinds`."""
        self.context = array("q")
        """Of each row its autograd context, else `NO_CONTEXT`."""
        self.autograd_message = array("q")
        """Of each row the autograd message id that it names; any number where it names none."""
        self._numbers: dict[MessageKind, int] = {}
        self._of_pattern: dict[Pattern | None, int] = {}
        """Pattern → the number of its kind."""
        self._events = tuple(array("q") for _ in range(7))
        self._marks = (array("q"), array("q"))
        """(row, mark) of values."""
        self._tensors = (array("q"), array("q"))
        """(row, mark) of tensors."""

    def feed(self, records: Sequence[RpcRecord]) -> None:
        """Takes the next records."""
        for record in records:
            number = self._of_pattern.get(record.pattern)
            if number is None or (record.tp.tensors and self.kinds[number].type in CARRIERS):
                record.told(self._feed_one)
            else:
                self._append(number, record.ids)

    def _append(self, kind: int, ids: Sequence[int]) -> None:
        """Takes the number of a message's kind and the ids of its context and autograd message."""
        self.kind.append(kind)
        self.context.append(ids[0] if ids else NO_CONTEXT)
        self.autograd_message.append(ids[-1] if ids else NONE)

    def _feed_one(self, record: RpcRecord) -> None:
        """Takes the next record; keeps nothing of a record at which this fails."""
        pattern = record.pattern
        number = self._of_pattern.get(pattern)
        marks: tuple[int, ...] = ()
        if number is None:
            kind, marks = self._kind(record)
            number = self._number(kind if pattern is None else replace(kind, marks=marks))
        tensors = self._tensors_of(record) if self.kinds[number].type in CARRIERS else []
        if pattern is None:
            ids, events = _autograd_ids(record), list(_events(record))
            for event in events:
                for column, part in zip(self._events, event, strict=True):
                    column.append(part)
            _extend(self._marks, record.row, marks)
        else:  # of RRefs it says nothing
            ids = record.ids
            self._of_pattern[pattern] = number
        _extend(self._tensors, record.row, tensors)
        self._append(number, ids)

    def _tensors_of(self, record: RpcRecord) -> list[int]:
        return _tensors(record, self._source) if record.tp.tensors and self._source is not None else []

    def _number(self, kind: MessageKind) -> int:
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        return number

    def _kind(self, record: RpcRecord) -> tuple[MessageKind, tuple[int, ...]]:
        rpc, facts = record.like, record.facts
        kind = message_type_of(rpc.command)
        found = MessageKind(
            kind,
            envelopes=tuple([envelope.message_type for envelope in rpc.envelopes]),
            grads=sum([meta.requires_grad and meta.part_of is None for meta in rpc.tensors]),
            elsewhere=any(meta.device != "cpu" for meta in rpc.tensors),
            failed=failed(record),
            whole=not record.problems,
        )
        if not record.tp.from_client or kind not in CALLS:
            root = None if facts.pickle is None else facts.pickle.root
            return replace(found, value=root) if type(root) is Global else found, ()
        function = function_of(record)
        found = replace(
            found,
            function=function,
            builtin=is_builtin(rpc.command),
            asynchronous=bool(getattr(rpc.command, "is_async_execution", False)),
            callee=callee_of(record),
            maker=maker_of(python_udf_of(record)),
        )
        return found, self._values(record)

    def _values(self, record: RpcRecord) -> tuple[int, ...]:
        command = record.like.command
        if type(command) in SCRIPT:
            return marks_of([SCRIPT[type(command)](command)])
        udf = python_udf_of(record)
        return () if udf is None else marks_of([udf.args, udf.kwargs])

    def events(self) -> Iterator[Event]:
        """Every event in the order of rows."""
        for what, row, on, number, fork_on, fork, owner in zip(*self._events, strict=True):
            yield Event(What(what), row, (on, number), (fork_on, fork), owner)

    def brought(self) -> dict[int, list[Id]]:
        """Row → the RRefs whose forks the message brings, in order."""
        found: dict[int, list[Id]] = defaultdict(list)
        for event in self.events():
            if event.what == What.BROUGHT:
                found[event.row].append(event.rref)
        return found

    def of_kinds(self, test: Callable[[MessageKind], bool]) -> NDArray[np.bool_]:
        """Returns of each row whether its kind passes a test; the test runs once per kind."""
        passes = np.asarray([test(kind) for kind in self.kinds], dtype=bool)
        found: NDArray[np.bool_] = passes[np.asarray(self.kind)]
        return found

    def kind_of(self, row: int) -> MessageKind:
        """What a message is."""
        return self.kinds[self.kind[row]]

    def context_of(self, row: int) -> int | None:
        """Returns the autograd context that a message belongs to."""
        context = self.context[row]
        return None if context == NO_CONTEXT else context

    def values(self, rows: Collection[int]) -> dict[int, frozenset[int]]:
        """Returns the marks of values of each of these rows."""
        found = _by_row(self._marks, rows)
        return {row: frozenset((*found.get(row, ()), *self.kind_of(row).marks)) for row in rows}

    def tensors(self, rows: Collection[int]) -> dict[int, frozenset[int]]:
        """Returns the marks of tensors of each of these rows, without `HIDDEN`."""
        found = _by_row(self._tensors, rows)
        return {row: frozenset(found.get(row, ())) - {HIDDEN} for row in rows}

    def opaque(self, rows: Collection[int]) -> list[int]:
        """Returns the rows with tensors that have no marks: too many tensors, or bytes are missing."""
        return [row for row, marks in _by_row(self._tensors, rows).items() if HIDDEN in marks]


def _extend(columns: tuple[array[int], array[int]], row: int, marks: Sequence[int]) -> None:
    columns[0].extend([row] * len(marks))
    columns[1].extend(marks)


def _by_row(columns: tuple[array[int], array[int]], rows: Collection[int]) -> dict[int, list[int]]:
    wanted = rows if isinstance(rows, (set, frozenset, dict)) else set(rows)
    found: dict[int, list[int]] = defaultdict(list)
    for row, mark in zip(*columns, strict=True):
        if row in wanted:
            found[row].append(mark)
    return found


def _autograd_ids(record: RpcRecord) -> tuple[int, ...]:
    """Returns the autograd context that a message belongs to, and the autograd message id that it names."""
    context, metadata = context_of(record), getattr(record.rpc.command, "autograd_metadata", None)
    for envelope in record.rpc.envelopes:
        if metadata is None and isinstance(envelope, RpcWithAutograd):
            metadata = envelope.autograd_metadata
    ids = () if metadata is None else (metadata.autograd_message_id,)
    return () if context is None else (context, *ids)


def _tensors(record: RpcRecord, source: CaptureBytes) -> list[int]:
    tensors, found = record.tp.tensors, []
    hidden = len(tensors) > MAX_MARKS
    for tensor in tensors[:MAX_MARKS]:
        extent = tensor.extent
        if extent is None or extent.missing:
            hidden = True
        else:
            mark = tensor_mark(extent, source)
            if mark is not None:
                found.append(mark)
    return [HIDDEN, *found] if hidden else found


def _events(record: RpcRecord) -> Iterator[tuple[int, ...]]:
    """What, row, both parts of the RRef's and of the fork's id, and the owner's."""
    for brought in record.facts.forks:
        yield What.BROUGHT, record.row, *brought.rref_id, *brought.fork_id, brought.owner_id
    command = record.like.command
    what = EVENTS.get(type(command))
    if what is None:
        return
    if isinstance(command, (PythonRemoteCall, ScriptRemoteCall)):
        yield what, record.row, *command.ret_rref_id.to_value(), *command.ret_fork_id.to_value(), NONE
    else:
        rref, fork = getattr(command, "rref_id", None), getattr(command, "fork_id", None)
        ids = (NO_ID if one is None else one.to_value() for one in (rref, fork))
        yield what, record.row, *next(ids), *next(ids), NONE


def marks_of(values: Sequence[Value]) -> tuple[int, ...]:
    """Marks of the numbers and texts in some values; names of functions and classes, RRefs, tensors and the
    keys of dicts are none."""
    found: dict[int, None] = {}
    stack, seen, left = list(reversed(values)), set[int](), MAX_NODES
    while stack and left and len(found) < MAX_MARKS:
        left -= 1
        node = stack.pop()
        kind = type(node)
        if kind in PLAIN:
            found[mark_of(node)] = None
        elif node is None or kind is bool or kind is Global or id(node) in seen:
            continue
        else:
            seen.add(id(node))
            if rref_fork(node) is None and tensor_reference(node) is None:
                inner = children(node)
                module = remote_module(node)
                if module is not None:
                    inner = module.attributes
                elif kind is Dict:
                    inner = [value for _, value in node.pairs]
                elif kind is PickleCall:
                    inner = [node.args, node.kwargs, node.state, *node.items]
                stack.extend(reversed(list(inner)[:MAX_NODES]))
    return tuple(found)


def mark_of(value: int | float | str | bytes) -> int:
    """A number for a value."""
    return hash((type(value), value))


def tensor_mark(extent: Extent, source: CaptureBytes) -> int | None:
    """Returns a number for the bytes of a storage; None where bytes are missing or too few."""
    size = extent.length
    if extent.missing or size < LEAST_BYTES:
        return None
    if size <= SAMPLE:
        data = extent.read(source)
    else:
        part, middle = SAMPLE // 3, size // 2
        ranges = ((0, part), (middle, middle + part), (size - part, size))
        data = b"".join([extent.part(a, b).read(source) for a, b in ranges])
    return hash((size, data)) if data.lstrip(data[:1]) else None


PLAIN = (int, float, str, bytes)
HIDDEN = 0
"""Stands for the tensors of a message that have no mark; see `opaque`."""
NO_ID = (NONE, NONE)
NO_CONTEXT = -(1 << 63)

CARRIERS = CALLS | {
    MessageType.PYTHON_RET,
    MessageType.SCRIPT_RET,
    MessageType.PYTHON_RREF_FETCH_RET,
    MessageType.SCRIPT_RREF_FETCH_RET,
}
"""Messages whose tensors a function was given or has returned."""

EVENTS: dict[type, What] = {
    PythonRemoteCall: What.MADE,
    ScriptRemoteCall: What.MADE,
    RemoteRet: What.CONFIRMED,
    RRefForkRequest: What.REQUESTED,
    RRefChildAccept: What.ACCEPTED,
    RRefUserDelete: What.DELETED,
    PythonRRefFetchCall: What.FETCHED,
    ScriptRRefFetchCall: What.FETCHED,
    RRefBackwardReq: What.DIFFERENTIATED,
}
