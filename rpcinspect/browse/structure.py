"""A message as a tree: envelopes, body, tensors, what is wrong with it; each node knows its bytes.

In: a record and its bytes. Out: nodes whose children are made when they are asked for, never more than a page
of a list at once. Labels are printable and short: nothing else of what was captured gets to the screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rpcinspect.browse.body_nodes import BodyNodes
from rpcinspect.browse.message_bytes import MAX_PATH, ByteRange, MessageBytes
from rpcinspect.browse.node import Node, Ranges, pages, way_down
from rpcinspect.errors import RpcInspectError
from rpcinspect.fields.body import envelope_json, tensor_text
from rpcinspect.fields.phrases import counted, duration, path_label, shorten_middle
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import storage_range
from rpcinspect.run.message import Tensor, tensors_of
from rpcinspect.run.tensors import LastRead
from rpcinspect.session.model import NONE, Session
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.views.message_parts import (
    COMMAND,
    DESCRIPTOR,
    ID,
    PAYLOAD,
    TABLE,
    TYPE,
    VISIBLE,
    tensor_facts,
)
from rpcinspect.views.words import moment

VALUES = 8
PAYLOADS_SHOWN = 20


class Structure:
    """The tree of one message."""

    def __init__(
        self,
        record: RpcRecord,
        source: CaptureBytes,
        session: Session | None = None,
        title: str = "",
        told: Sequence[str] = (),
    ) -> None:
        """`source`: as for `MessageBytes`. Without a session, which is there when all was read, nothing is
        told of other messages; `title` stands above all then. `told`: what else is known of the message,
        which stands first."""
        self._told = told
        self.record = record
        self.session = session
        self.bytes = MessageBytes(record, source, session)
        self.tensors: tuple[Tensor, ...] = tensors_of(record, LastRead(source))
        self._parameters = record.facts.parameters
        self._listed = len(self.tensors) or len(record.tp.tensors)
        """Tensors of the table, or storages where no table was read."""
        self.root = Node(self._title(title), self.bytes.frames(), self._top)

    def _title(self, title: str) -> str:
        name = type_name(self.record.rpc.message.type)
        if self.session is None:
            return title or name
        row = self.record.row
        ends = f"{self.session.source(row)} → {self.session.destination(row)}"
        return f"message {int(self.session.index[row])}: {name}, {ends}"

    def _top(self) -> Sequence[Node]:
        return list(self._parts())

    def _parts(self) -> Iterator[Node]:
        record, find = self.record, self.bytes.of
        message = record.rpc.message
        yield from (Node(line) for line in self._told)
        yield from (Node(f"problem: {p.layer}: {p.reason}", look="bad") for p in record.problems)
        yield from self._findings()
        yield Node("how it travelled", self.root.ranges, lambda: list(self._travelled()))
        if find(DESCRIPTOR):
            yield Node(self._descriptor_label(), find(DESCRIPTOR), self._descriptor)
        yield Node(f"type: {type_name(message.type)} ({message.type:#x})", find(TYPE))
        yield Node(f"id: {message.id}", find(ID))
        lies = find(COMMAND, PAYLOAD)
        says = BodyNodes(record, self.bytes.parts[lies[0].part].data if lies else b"", lies, self._reference)
        for envelope in record.rpc.envelopes:
            name = f"envelope {type_name(envelope.message_type)}"
            ranges = find(name, PAYLOAD)
            told = envelope_json(envelope)
            del told["type"]
            yield Node(name, ranges, says.fields(told, ranges), look="title")
        yield Node(f"body {says.type}", find(COMMAND, PAYLOAD), says.body(), look="title")
        if self._listed or find(TABLE):
            yield self._tensor_table()  # the last one: `way_to_tensor` counts on that

    def _findings(self) -> Iterator[Node]:
        if self.session is None:
            return
        number = int(self.session.index[self.record.row])
        for finding in self.session.findings:
            if number in finding.messages:
                words = f"finding {finding.code}: {finding.text}"
                yield Node(words, look="bad" if finding.severity == "error" else "odd")

    def _travelled(self) -> Iterator[Node]:
        record, session, tp = self.record, self.session, self.record.tp
        if session is not None:
            partner = session.messages.partner[record.row]
            if partner != NONE:
                latency = duration(session.messages.latency_ns(record.row) or 0)
                word = "answered by" if tp.from_client else "answers"
                yield Node(f"{word}: message {int(session.index[partner])}, latency {latency}")
        took = "" if tp.pipe.logged else f", takes {duration(tp.last_ns - tp.first_ns)}"
        yield Node(f"time: {moment(tp.first_ns, 9)}{took}")
        file = "" if session is None else f"{_file(session, tp.capture)}, "
        if tp.pipe.logged:
            yield Node(f"place: {file}record {tp.packet}, at byte {tp.offset}")
            return
        where = record.location
        visible = VISIBLE[tp.pipe.visible]
        yield Node(f"pipe: {tp.pipe.number} (transport {tp.pipe.transport}, {visible})")
        yield Node(f"place: {file}packet {where.packet}, {where.flow}, offset {where.offset}")

    def _descriptor_label(self) -> str:
        told = self.record.tp.descriptor
        tensors = f", {counted(len(told.tensors), 'tensor')}" if told.tensors else ""
        return f"descriptor: {counted(len(told.payloads), 'payload')}{tensors}"

    def _descriptor(self) -> Sequence[Node]:
        told, ranges = self.record.tp.descriptor, self.bytes.of(DESCRIPTOR)
        lengths = ", ".join(f"{payload.length:,}" for payload in told.payloads[:PAYLOADS_SHOWN])
        nodes = [Node(f"payloads: {lengths} bytes", ranges)]

        def tensor(number: int) -> Node:
            one = told.tensors[number]
            target = "" if one.target_device is None else f" → {one.target_device}"
            return Node(f"tensor {number}: {one.length:,} bytes, {one.source_device}{target}", ranges)

        if told.tensors:
            label = counted(len(told.tensors), "tensor")
            nodes.append(Node(label, ranges, pages(len(told.tensors), tensor, ranges, "tensors")))
        return nodes

    def _reference(self, before: str, number: int, at: Ranges) -> Node:
        ranges = (*self._elements(number), *at)
        return Node(before + self._tensor_words(number), ranges, tensor=number)

    def _tensor_words(self, number: int) -> str:
        meta = self.record.rpc.tensors[number]
        return tensor_text(number, meta, parameter=number in self._parameters)

    def _elements(self, number: int) -> Ranges:
        """Where the elements of a tensor lie, and those of its parts, if it is made of some."""
        metas = self.record.rpc.tensors
        meta = metas[number]
        lie = [self._lies(meta), *(self._lies(metas[part]) for _, part in meta.parts)]
        return tuple(one for one in lie if one is not None)

    def _lies(self, meta: TensorMeta) -> ByteRange | None:
        if meta.storage is None or meta.storage >= len(self.record.tp.tensors):
            return None
        start, end = storage_range(meta)
        length = self.record.tp.tensors[meta.storage].descriptor.length
        place = self.bytes.storages + meta.storage
        return ByteRange(place, min(start, length), min(end, length)) if start < end else None

    def _tensor_table(self) -> Node:
        """The table with its tensors; storages that it does not speak of, which only a damaged one has."""
        unread = not self.tensors and self._listed
        make, noun = (self._storage, "storage") if unread else (self._tensor, "tensor")
        ranges = self.bytes.of(TABLE)
        children = pages(self._listed, make, ranges, f"{noun}s") if self._listed else None
        return Node(f"tensor table: {counted(self._listed, noun)}", ranges, children, look="title")

    def _storage(self, number: int) -> Node:
        part = self.bytes.parts[self.bytes.storages + number]
        ranges = (ByteRange(self.bytes.storages + number, 0, part.length),)
        return Node(f"{part.name}: {part.length:,} bytes, {part.about}", ranges)

    def _tensor(self, number: int) -> Node:
        meta = self.record.rpc.tensors[number]
        lost = self.tensors[number].is_missing
        ranges = (*self._elements(number), *self.bytes.of(TABLE))

        def make() -> Sequence[Node]:
            nodes = [Node(f"{name}: {told}", ranges) for name, told in tensor_facts(self.record, meta)]
            if meta.storage is not None:
                nodes.append(Node(f"values: {first_words(self.tensors[number])}", ranges))
            return nodes

        return Node(self._tensor_words(number), ranges, make, look="odd" if lost else "", tensor=number)

    def innermost(self, part: int, at: int) -> list[Node]:
        """Returns the way from the root to the innermost node that a byte is of."""
        if part >= self.bytes.storages:
            number = self._tensor_at(part, at)
            return [self.root] if number is None else self.way_to_tensor(number)
        way = [self.root]
        while way[-1] is not self.root.children[-1]:  # each tensor has all of the table
            here = way[-1]
            inner = (one for one in here.children if one.ranges != here.ranges and one.holds(part, at))
            node = next(inner, None)
            if node is None:
                break
            way.append(node)
        return way

    def way_to_tensor(self, number: int) -> list[Node]:
        """Returns the way from the root to a tensor in the table, or to a storage where no table was read."""
        table = self.root.children[-1]
        return [self.root, table, *way_down(table, number, self._listed)]

    def _tensor_at(self, part: int, at: int) -> int | None:
        """The first of the smallest tensors in which a byte of a storage lies."""
        metas = self.record.rpc.tensors
        if not metas:
            return part - self.bytes.storages
        best, size = None, -1
        for number, meta in enumerate(metas):
            found = self._lies(meta)
            if found is not None and found.holds(part, at) and not 0 <= size <= found.end - found.start:
                best, size = number, found.end - found.start
        return best


def first_words(tensor: Tensor) -> str:
    """Returns the first elements of a tensor as a text; a question mark for what was not captured."""
    try:
        values = tensor.elements(0, VALUES)
    except (RpcInspectError, OSError) as error:
        return f"can't be told: {error}"
    more = ", …" if math.prod(tensor.shape) > VALUES else ""
    return (", ".join("?" if value is None else str(value) for value in values) or "none") + more


def _file(session: Session, capture: int) -> str:
    return shorten_middle(path_label(session.captures[capture].path.rpartition("/")[2]), MAX_PATH)
