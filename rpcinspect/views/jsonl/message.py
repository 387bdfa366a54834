"""What a message says as the end of its line in the output contract, from `envelopes` on.

In: records and the captures' bytes. Out: bytes of JSON. A training loop repeats its commands, tensor tables
and descriptors, and the decoders give the same object for equal bytes; so the text that follows from each is
kept, and a message costs its ids, its hashes and its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TypeAlias

import orjson
from msgspec import Struct

from rpcinspect.fields.body import Bodies, body_of, envelope_json
from rpcinspect.fields.plain import Json, Picked
from rpcinspect.fields.table import TENSOR
from rpcinspect.fields.templates import template
from rpcinspect.rpc.cache import BoundedCache
from rpcinspect.rpc.patterns import Pattern
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import repeated_range
from rpcinspect.run.message import Tensor, tensors_of
from rpcinspect.run.tensors import LastRead, TensorPlace, hash_of, storage_of
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tcp.segment import Flow
from rpcinspect.tensorpipe.records import Placement
from rpcinspect.views.jsonl.hashes import LARGE, HashThreads, hash_range

Repeated: TypeAlias = tuple[int, int, int, int]
"""(storage, start, end, times): what a tensor's bytes are, see `repeated_range`."""

Range: TypeAlias = tuple[int, int, int]
"""(storage, start, end)."""

CACHE_BYTES = 1 << 22
SHORT = 1 << 12
"""Bytes of a tensor that is hashed without further ado."""
NULL = b"null"
BYTES, NUMBER = orjson.Fragment(b"\1"), orjson.Fragment(b"\2")
"""Stand in JSON, which has no such bytes, for what each message has of its own."""

location_json = Picked("capture packet flow offset")
"""`location`."""
problem_json = Picked("layer reason packet=location.packet offset=location.offset")
"""One of a message's `problems`."""
TENSOR_JSON = [field for field in TENSOR if field.in_json]
PLACE = {"capture": NUMBER, "packet": NUMBER, "offset": NUMBER}
PACKETS = {"first_packet": NUMBER, "last_packet": NUMBER}
"""What messages of a flow have of their own in `location`."""


def message_location(record: RpcRecord) -> Json | None:
    """Returns the `location` of a message; None of one in a log."""
    tp = record.tp
    if tp.pipe.logged:
        return None
    return location_json(record.location) | {"first_packet": tp.first_packet, "last_packet": tp.last_packet}


def tensor_json(tensor: Tensor) -> Json:
    """Returns an item of a message's `tensors`."""
    return {field.key: field.get(tensor) for field in TENSOR_JSON}


class TableText(Struct, frozen=True):
    """What follows from a tensor table and a descriptor when every tensor's bytes are there."""

    owners: tuple[object, ...]
    """The objects that the key names by id(): as long as the entry lives, no other object has their ids."""
    text: bytes
    """`tensors`, for the operator %: with a place for each hash."""
    ranges: tuple[Repeated | None, ...]
    """Of each tensor whose logical bytes are a range of its storage, once or several times over."""
    sound: bool
    """Whether the message has every storage that the table speaks of."""


class PatternText(Struct, frozen=True):
    """What follows from a pattern in one direction of a pipe."""

    owners: tuple[Pattern, Flow]
    """The objects that the key names by id()."""
    text: bytes
    """The whole tail, for the operator %: with places for ids, hashes, and capture, packet and offset; empty
    where ids can't be told from what else is there."""
    ranges: tuple[Repeated | None, ...]
    """What is to be hashed."""
    short: Sequence[Range] | None
    """The same, if all are short and hashes are wanted, and no two tensors share a storage."""
    placed: bool
    """Whether it has a place in packets: messages of logs have none."""


class MessageRenderer:
    """Renders the part of a message line that the message alone decides."""

    def __init__(
        self, source: CaptureBytes, *, hashes: bool = True, beside: HashThreads | None = None
    ) -> None:
        """`beside`: hashes large tensors, and puts marks into tails, which the caller replaces."""
        self._source = source
        self._hashes = hashes
        self._beside = beside
        self._bodies = Bodies()
        self._tables: BoundedCache[tuple[int, int, frozenset[int]], TableText] = BoundedCache(CACHE_BYTES)
        self._patterns: BoundedCache[tuple[int, int], PatternText] = BoundedCache(CACHE_BYTES)

    def tail(self, record: RpcRecord) -> bytes:
        """`"envelopes":…` to the closing brace of the object."""
        return self.tails((record,))[0]

    def tails(self, records: Sequence[RpcRecord | None]) -> list[bytes]:
        """Returns the tails of several records; empty for None."""
        line = self._line
        return [b"" if record is None else record.told(line) for record in records]

    def _line(self, record: RpcRecord) -> bytes:
        pattern, tp = record.pattern, record.tp
        if pattern is None or record.problems:
            return self._tail(record)
        known = self._patterns.get((id(pattern), id(tp.flow))) or self._learn(record, pattern)
        hashes: Sequence[bytes] | None = ()
        if tp.tensors:
            hashes = self._short_hashes(record, known.short) if known.short is not None else None
            if hashes is None:
                hashes = self._hashes_of(record, known.ranges)
        if not known.text or hashes is None:
            return self._tail(record)
        if known.placed:
            place = tp.capture, tp.packet, tp.offset, tp.first_packet, tp.last_packet
            return known.text % (*record.ids, *hashes, *place)
        return known.text % (*record.ids, *hashes)

    def _tail(self, record: RpcRecord) -> bytes:
        """Returns the tail of any message."""
        return orjson.dumps(
            {
                "envelopes": [envelope_json(envelope) for envelope in record.rpc.envelopes],
                "body": self._bodies.of(record).json,
                "tensors": orjson.Fragment(self._tensors(record)),
                "problems": [problem_json(problem) for problem in record.problems],
                "location": message_location(record),
            }
        )[1:]

    def _learn(self, record: RpcRecord, pattern: Pattern) -> PatternText:
        flow = record.tp.flow
        table = self._table(record)
        text = self._pattern_text(record, pattern, table) if table.sound else b""
        short = _short(table.ranges, len(record.tp.tensors)) if self._hashes else None
        known = PatternText((pattern, flow), text, table.ranges, short, not record.tp.pipe.logged)
        message = pattern.rpc.message
        kept = len(text) + len(message.payload) + len(message.tensor_table)
        self._patterns.put((id(pattern), id(flow)), known, kept)
        return known

    def _pattern_text(self, record: RpcRecord, pattern: Pattern, table: TableText) -> bytes:
        def tell(like: RpcRecord) -> str:
            said = {
                "envelopes": [envelope_json(envelope) for envelope in like.rpc.envelopes],
                "body": body_of(like).json,
            }
            return orjson.dumps(said)[1:-1].decode()

        text = template(record, pattern, tell, str, "%d").encode()
        location = message_location(record)
        if location is not None:
            location |= PLACE | PACKETS
        rest = _places(orjson.dumps({"problems": [], "location": location})[1:])
        return b'%b,"tensors":%b,%b' % (text, table.text, rest) if text else b""

    def _table(self, record: RpcRecord) -> TableText:
        metas, descriptor, parameters = record.like.tensors, record.tp.descriptor, record.facts.parameters
        key = (id(metas), id(descriptor), parameters)
        table = self._tables.get(key)
        if table is None:
            table = self._table_text(record)
            self._tables.put(key, table, len(table.text))
        return table

    def _table_text(self, record: RpcRecord) -> TableText:
        told = []
        for tensor in tensors_of(record):
            place = tensor.place
            tensor.place = TensorPlace(place.storage_nbytes, 0, Placement.CERTAIN, place.target_device)
            told.append(tensor_json(tensor) | ({"sha256": BYTES} if self._hashes else {}))
        metas = record.like.tensors
        ranges = tuple(_range(record, meta) for meta in metas)
        storages = len(record.tp.tensors)
        sound = all(meta.storage is None or meta.storage < storages for meta in metas)
        return TableText((metas, record.tp.descriptor), _places(orjson.dumps(told)), ranges, sound)

    def _tensors(self, record: RpcRecord) -> bytes:
        table = self._table(record)
        hashes = self._hashes_of(record, table.ranges) if table.sound else None
        if hashes is not None:
            return table.text % tuple(hashes)
        read = LastRead(self._source) if self._hashes else None
        return orjson.dumps([tensor_json(tensor) for tensor in tensors_of(record, read)])

    def _short_hashes(self, record: RpcRecord, ranges: Sequence[Range]) -> list[bytes] | None:
        """`_hashes_of` of short ranges, at half the cost; None where a storage is not there in one piece."""
        read, places, out = self._source.read, [], []
        for storage in record.tp.tensors:
            extent = storage.extent
            if extent is None or extent.missing or len(extent.pieces) != 1:
                return None
            places.append(extent.pieces[0])
        for number, start, end in ranges:
            capture, offset, _ = places[number]
            out.append(b'"%b"' % sha256(read(capture, offset + start, end - start)).hexdigest().encode())
        return out

    def _hashes_of(self, record: RpcRecord, ranges: Sequence[Repeated | None]) -> list[bytes] | None:
        """The JSON of each hash, none where none are wanted; None: not every byte is there."""
        extents = []
        for storage in record.tp.tensors:
            extent = storage.extent
            if extent is None or extent.missing:
                return None
            extents.append(extent)
        out: list[bytes] = []
        if not self._hashes:
            return out
        shared, read = len(ranges) > len(extents), LastRead(self._source)
        for index, place in enumerate(ranges):
            if place is None:
                digest = hash_of(record, record.like.tensors[index], read)
            else:
                number, start, end, times = place
                again = shared or times != 1
                if again and not self._source.affords((end - start) * times):
                    digest = None
                elif end - start >= LARGE and times == 1 and self._beside is not None:
                    digest = self._beside.of(record.row, extents[number], start, end)
                else:
                    digest = hash_range(extents[number], start, end, self._source, times)
            out.append(NULL if digest is None else b'"%b"' % digest.encode())
        return out


def _places(told: bytes) -> bytes:
    """JSON for the operator %."""
    return told.replace(b"%", b"%%").replace(b"\1", b"%b").replace(b"\2", b"%d")


def _short(ranges: Sequence[Repeated | None], storages: int) -> list[Range] | None:
    """Returns the ranges, if they are short and of a storage each."""
    found: list[Range] = []
    for place in ranges:
        if place is None or place[3] != 1 or place[2] - place[1] > SHORT or len(ranges) > storages:
            return None
        found.append(place[:3])
    return found


def _range(record: RpcRecord, meta: TensorMeta) -> Repeated | None:
    storage = storage_of(record, meta)
    if storage is None or meta.storage is None:
        return None
    found = repeated_range(meta, storage.descriptor.length)
    return None if found is None else (meta.storage, *found)
