"""One message as a line of the output contract, made fast: most of the text of most messages was made before.

In: records and the captures' bytes. Out: bytes of JSON. A training loop repeats its commands, tensor tables
and descriptors, and the decoders give the same object for equal bytes; so the text that follows from each is
kept, and a message costs its ids, its hashes and its place. `message` has the plain form of everything
here; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, TypeAlias

import orjson
from msgspec import Struct

from rpcinspect.errors import Location, Problem
from rpcinspect.rpc.cache import BoundedCache
from rpcinspect.rpc.decode import REPEATING, held_bytes
from rpcinspect.rpc.envelope import Envelope, RpcWithAutograd
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.patterns import Pattern
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import repeated_range
from rpcinspect.run.tensors import LastRead, TensorPlace, hash_of, place_of, storage_of
from rpcinspect.views.contract.message import body_of, envelope_json, tensor_json, tensor_texts, text
from rpcinspect.views.templates import template
from rpcinspect.wire.ranges import CaptureBytes, Extent
from rpcinspect.wire.records import Placement, TpMessage
from rpcinspect.wire.segment import Flow

Json: TypeAlias = dict[str, Any]
Repeated: TypeAlias = tuple[int, int, int, int]
"""(storage, start, end, times): what a tensor's bytes are, see `repeated_range`."""

CACHE_BYTES = 1 << 22
NULL = b"null"


class TableText(Struct, frozen=True):
    """What follows from a tensor table and a descriptor when every tensor's bytes are there."""

    owners: tuple[object, ...]
    """The objects that the key names by id(): as long as the entry lives, no other object has their ids."""
    texts: tuple[str, ...]
    """How tensors are named in rendered values."""
    heads: tuple[bytes, ...]
    """Each tensor's JSON up to the value of `sha256`."""
    ranges: tuple[Repeated | None, ...]
    """Of each tensor whose logical bytes are a range of its storage, once or several times over."""
    sound: bool
    """Whether the message has every storage that the table speaks of."""


class PatternText(Struct, frozen=True):
    """What follows from a pattern in one direction of a pipe."""

    owners: tuple[Pattern, Flow]
    """The objects that the key names by id()."""
    text: bytes
    """The whole tail, with %d for each id, %b for each hash, %d for capture, packet and offset; empty where
    ids can't be told from what else is there."""
    ranges: tuple[Repeated | None, ...]
    """What is to be hashed."""
    placed: bool
    """Whether it has a place in packets: messages of logs have none."""


class MessageRenderer:
    """Renders the part of a message line that the message alone decides."""

    def __init__(self, source: CaptureBytes, *, hashes: bool = True) -> None:
        self._source = source
        self._hashes = hashes
        self._bodies: BoundedCache[tuple[int, int], tuple[object, object, bytes]] = BoundedCache(CACHE_BYTES)
        self._tables: BoundedCache[tuple[int, int, frozenset[int]], TableText] = BoundedCache(CACHE_BYTES)
        self._patterns: BoundedCache[tuple[int, int], PatternText] = BoundedCache(CACHE_BYTES)
        self._flows: dict[int, tuple[Flow, bytes]] = {}
        self._maps: BoundedCache[int, tuple[object, str]] = BoundedCache(CACHE_BYTES)

    def tail(self, record: RpcRecord) -> bytes:
        """`"envelopes":…` to the closing brace of the object."""
        return self.tails((record,))[0]

    def tails(self, records: Sequence[RpcRecord | None]) -> list[bytes]:
        """Those of several records; empty for None. A message of a pattern costs its hashes and 1 µs, where
        the rendering of all others takes 5.
        """
        line = self._line
        return [b"" if record is None else record.told(line) for record in records]

    def _line(self, record: RpcRecord) -> bytes:
        pattern, tp = record.pattern, record.tp
        if pattern is None or record.problems:
            return self._tail(record)
        known = self._patterns.get((id(pattern), id(tp.flow))) or self._learn(record, pattern)
        hashes = self._hashes_of(record, known.ranges) if tp.tensors else ()
        if not known.text or hashes is None:
            return self._tail(record)
        if known.placed:
            return known.text % (*record.ids, *hashes, tp.capture, tp.packet, tp.offset)
        return known.text % (*record.ids, *hashes)

    def _tail(self, record: RpcRecord) -> bytes:
        """The same for any message."""
        rpc, tp = record.rpc, record.tp
        if rpc.tensors or tp.tensors:
            table = self._table(record)
            tensors = self._tensors(record, table)
            body = self._body(record, table)
        else:
            tensors, body = b"", self._body(record, NO_TENSORS)
        envelopes = b",".join([self._envelope(e) for e in rpc.envelopes]) if rpc.envelopes else b""
        problems = NO_PROBLEMS
        if record.problems:
            problems = orjson.dumps([problem_json(problem) for problem in record.problems])
        return b'"envelopes":[%b],"body":%b,"tensors":[%b],"problems":%b,"location":%b}' % (
            envelopes,
            body,
            tensors,
            problems,
            NULL if tp.pipe.logged else self._location(tp),
        )

    def _learn(self, record: RpcRecord, pattern: Pattern) -> PatternText:
        flow = record.tp.flow
        table = self._table(record) if record.like.tensors or record.tp.tensors else NO_TENSORS
        text = self._pattern_text(record, pattern, table) if table.sound else b""
        known = PatternText((pattern, flow), text, table.ranges, not record.tp.pipe.logged)
        message = pattern.rpc.message
        kept = len(text) + len(message.payload) + len(message.tensor_table)
        self._patterns.put((id(pattern), id(flow)), known, kept)
        return known

    def _pattern_text(self, record: RpcRecord, pattern: Pattern, table: TableText) -> bytes:
        def tell(like: RpcRecord) -> str:
            envelopes = b",".join(map(self._envelope, like.rpc.envelopes))
            body = orjson.dumps(body_of(like, table.texts))
            return (b'"envelopes":[%b],"body":%b' % (envelopes, body)).decode()

        text = template(record, pattern, tell, str, "%d").encode()
        if not text:
            return b""
        value = b"%b}" if self._hashes else b"null}"
        tensors = b",".join([head.replace(b"%", b"%%") + value for head in table.heads])
        location = NULL
        if not record.tp.pipe.logged:
            flow = self._flow(record.tp.flow).replace(b"%", b"%%")
            location = b'{"capture":%%d,"packet":%%d,"flow":"%b","offset":%%d}' % flow
        return text + b',"tensors":[%b],"problems":[],"location":%b}' % (tensors, location)

    def _location(self, tp: TpMessage) -> bytes:
        place = (tp.capture, tp.packet, self._flow(tp.flow), tp.offset)
        return b'{"capture":%d,"packet":%d,"flow":"%b","offset":%d}' % place

    def _flow(self, flow: Flow) -> bytes:
        known = self._flows.get(id(flow))
        if known is None:
            known = self._flows[id(flow)] = (flow, str(flow).encode())
        return known[1]

    def _envelope(self, envelope: Envelope) -> bytes:
        if type(envelope) is not RpcWithAutograd:
            return orjson.dumps(envelope_json(envelope))
        devices = envelope.device_map
        known = self._maps.get(id(devices))
        if known is None:
            known = (devices, orjson.dumps({text(a): text(b) for a, b in devices.items()}).decode())
            self._maps.put(id(devices), known, len(known[1]))
        metadata = envelope.autograd_metadata
        return (
            f'{{"type":"{type_name(envelope.message_type)}","context_id":{metadata.autograd_context_id},'
            f'"autograd_message_id":{metadata.autograd_message_id},"from_worker_id":{envelope.from_worker_id},'
            f'"device_map":{known[1]},"wrapped_type":"{type_name(envelope.wrapped_message_type)}"}}'
        ).encode()

    def _body(self, record: RpcRecord, table: TableText) -> bytes:
        command, tensors = record.rpc.command, record.rpc.tensors
        key = (id(command), id(tensors))
        known = self._bodies.get(key)
        if known is not None:
            return known[2]
        body = orjson.dumps(body_of(record, table.texts))
        envelopes = record.rpc.envelopes
        kind = envelopes[-1].wrapped_message_type if envelopes else record.rpc.message.type
        if kind in REPEATING:
            self._bodies.put(key, (command, tensors, body), len(body) + held_bytes(record.rpc))
        return body

    def _table(self, record: RpcRecord) -> TableText:
        metas, descriptor, parameters = record.rpc.tensors, record.tp.descriptor, record.facts.parameters
        key = (id(metas), id(descriptor), parameters)
        table = self._tables.get(key)
        if table is None:
            table = _table_text(record)
            self._tables.put(key, table, sum(map(len, table.heads)))
        return table

    def _tensors(self, record: RpcRecord, table: TableText) -> bytes:
        hashes = self._hashes_of(record, table.ranges) if table.sound else None
        if hashes is None:
            return self._incomplete_tensors(record)
        values = hashes if self._hashes else [NULL] * len(table.heads)
        return b",".join([head + value + b"}" for head, value in zip(table.heads, values, strict=True)])

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
                else:
                    digest = hash_range(extents[number], start, end, self._source, times)
            out.append(NULL if digest is None else b'"%b"' % digest.encode())
        return out

    def _incomplete_tensors(self, record: RpcRecord) -> bytes:
        out, read = [], LastRead(self._source)
        for index, meta in enumerate(record.rpc.tensors):
            digest = hash_of(record, meta, read) if self._hashes else None
            out.append(orjson.dumps(_tensor_json(record, index, place_of(record, meta), digest)))
        return b",".join(out)


def hash_range(extent: Extent, start: int, end: int, source: CaptureBytes, times: int = 1) -> str:
    """sha256 of the bytes [start, end) of an extent without missing bytes, piece by piece; of that many
    copies of them, which are then few bytes.
    """
    if len(extent.pieces) == 1:
        capture, offset, _ = extent.pieces[0]
        data = source.read(capture, offset + start, end - start)
        return sha256(data if times == 1 else data * times).hexdigest()
    part = extent.part(start, end)
    if times != 1:
        return sha256(part.read(source) * times).hexdigest()
    digest = sha256()
    for piece in part.pieces:
        digest.update(source.read(*piece))
    return digest.hexdigest()


def _table_text(record: RpcRecord) -> TableText:
    metas = record.rpc.tensors
    texts = tensor_texts(record)
    heads = []
    for index, meta in enumerate(metas):
        place = place_of(record, meta)
        whole = TensorPlace(place.storage_nbytes, 0, Placement.CERTAIN, place.target_device)
        told = orjson.dumps(_tensor_json(record, index, whole, None))
        heads.append(told[: -len(b"null}")])
    ranges = tuple(_range(record, meta) for meta in metas)
    storages = len(record.tp.tensors)
    sound = all(meta.storage is None or meta.storage < storages for meta in metas)
    return TableText((metas, record.tp.descriptor), texts, tuple(heads), ranges, sound)


def _range(record: RpcRecord, meta: TensorMeta) -> Repeated | None:
    storage = storage_of(record, meta)
    if storage is None or meta.storage is None:
        return None
    found = repeated_range(meta, storage.descriptor.length)
    return None if found is None else (meta.storage, *found)


def _tensor_json(record: RpcRecord, index: int, place: TensorPlace, digest: str | None) -> Json:
    return tensor_json(
        record.rpc.tensors[index],
        storage_nbytes=place.storage_nbytes,
        missing_bytes=place.missing_bytes,
        placement=place.placement.value,
        sha256=digest,
        target_device=place.target_device,
        parameter=index in record.facts.parameters,
    )


def problem_json(problem: Problem) -> Json:
    """One of a message's `problems`."""
    where = problem.location
    return {
        "layer": problem.layer,
        "reason": text(problem.reason),
        "packet": where.packet,
        "offset": where.offset,
    }


def location_json(location: Location) -> Json:
    """`location`."""
    return {
        "capture": location.capture,
        "packet": location.packet,
        "flow": location.flow,
        "offset": location.offset,
    }


NO_PROBLEMS = b"[]"
NO_TENSORS = TableText((), (), (), (), True)
