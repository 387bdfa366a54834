"""A session, or some of its messages, redacted, in the form that the writers of captures take.

In: a session, its records, a reader of their tensors' bytes, a key. Out: the same three with other values,
for the writers of pcaps and logs. Tensors are made when they are read, one at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from msgspec.structs import replace

from rpcinspect.equality.elements import ReadExtent
from rpcinspect.export.pcap.pipes import Numbered
from rpcinspect.export.redaction.labels import Labels, gathered_names, worker_names
from rpcinspect.export.redaction.payloads import redact_payload, redact_table
from rpcinspect.export.redaction.pseudonyms import Pseudonyms
from rpcinspect.export.redaction.storages import redact_storage
from rpcinspect.rpc.message import are_torchs
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.session.model import Session
from rpcinspect.tcp.ranges import Extent, ranges_beside
from rpcinspect.tensorpipe.control import write_descriptor
from rpcinspect.tensorpipe.control_types import TpDescriptor
from rpcinspect.tensorpipe.records import TpTensor

MADE = -1
"""The capture that redacted tensors are said to lie in, one behind the other."""
CACHE_BYTES = 1 << 24


class Redactor:
    """Makes redacted messages of a session, in the form that the writers of captures take."""

    def __init__(
        self, session: Session, kept: Sequence[Numbered], read: ReadExtent, key: bytes, *, network: bool
    ) -> None:
        """`kept`: the messages to be written; `network`: for packets, not for a log."""
        self._original = session
        self._read = read
        self._kept = kept
        gathered = {name for message in kept for name in gathered_names(message.record)}
        self._words = Pseudonyms(key, worker_names(session) | gathered)
        self._labels = Labels(self._words)
        self.session = self._labels.session(session, network=network)
        self._starts: list[int] = []
        self._storages: list[tuple[Extent, tuple[TensorMeta, ...], int]] = []
        self._end = 0
        self._last: tuple[int, bytes] = (-1, b"")
        self._known: dict[tuple[Hashable, bytes], bytes] = {}
        self._cached = 0

    def messages(self) -> list[Numbered]:
        """The messages, in the same order."""
        return [Numbered(message.index, self._record(message.record)) for message in self._kept]

    def read(self, extent: Extent) -> bytes:
        """Bytes of a redacted tensor, as the writers ask for them; zeros where they were not captured."""
        out = bytearray(extent.length)
        for at, (capture, offset, length) in zip(extent.starts, extent.pieces, strict=True):
            assert capture == MADE
            out[at : at + length] = self._made(offset, length)
        return bytes(out)

    def _record(self, record: RpcRecord) -> RpcRecord:
        tp = record.tp
        payloads = self._payloads_of(record)
        descriptor = self._descriptor(tp.descriptor)
        body = tp.descriptor_body
        if descriptor != tp.descriptor:
            body = write_descriptor(descriptor, tp.layout)
        tensors = [
            TpTensor(said, tensor.placement, self._extent(record, number, tensor))
            for number, (tensor, said) in enumerate(zip(tp.tensors, descriptor.tensors, strict=True))
        ]
        made = replace(
            tp,
            payloads=payloads,
            descriptor=descriptor,
            descriptor_body=body,
            tensors=tensors,
            hashes=(),  # of the values that are replaced
        )
        return RpcRecord(record.row, made, record.rpc, record.facts, record.problems)

    def _payloads_of(self, record: RpcRecord) -> tuple[bytes, ...]:
        tp, words = record.tp, self._words
        if not are_torchs(tp.payloads):
            return tuple([words.filler(payload) for payload in tp.payloads])
        lost = tp.payload_missing or (0, 0, 0, 0)
        kind = int.from_bytes(tp.payloads[0], "little", signed=True)
        control = bool(self._original.messages.control[record.row])
        payload, table = tp.payloads[2:]
        other = partial(redact_payload, kind, payload, words, control=control)
        return (
            *tp.payloads[:2],
            words.filler(payload) if lost[2] else self._once((kind, control), payload, other),
            words.filler(table)
            if lost[3]
            else self._once("table", table, partial(redact_table, table, words)),
        )

    def _once(self, what: Hashable, data: bytes, made: Callable[[], bytes]) -> bytes:
        """What comes of some data; equal ones are redacted once, as far as memory allows."""
        found = self._known.get((what, data))
        if found is None:
            found = made()
            if self._cached < CACHE_BYTES:
                self._known[what, data] = found
                self._cached += len(data)
        return found

    def _descriptor(self, said: TpDescriptor) -> TpDescriptor:
        """Lengths and devices; what nobody of torch's writes beside them is replaced."""
        metadata = self._words.filler
        payloads = tuple([replace(p, metadata=metadata(p.metadata)) for p in said.payloads])
        tensors = tuple(
            [
                replace(
                    t,
                    source_device=self._labels.device(t.source_device),
                    target_device=None if t.target_device is None else self._labels.device(t.target_device),
                    metadata=metadata(t.metadata),
                    channel=self._labels.channel(t.channel),
                    channel_descriptor=None
                    if t.channel_descriptor is None
                    else metadata(t.channel_descriptor),
                )
                for t in said.tensors
            ]
        )
        made = TpDescriptor(metadata(said.metadata), payloads, tensors)
        return said if made == said else made

    def _extent(self, record: RpcRecord, number: int, tensor: TpTensor) -> Extent | None:
        """Where the redacted bytes are: in order, behind those of all before; holes stay holes."""
        extent = tensor.extent
        if extent is None:
            return None
        start = self._end
        self._starts.append(start)
        self._storages.append((extent, record.rpc.tensors, number))
        self._end += max(extent.length, 1)
        there = ranges_beside(extent.missing, extent.length)
        pieces = tuple([(MADE, start + begin, end - begin) for begin, end in there])
        return Extent(extent.length, pieces, extent.missing)

    def _made(self, offset: int, length: int) -> bytes:
        which = bisect_right(self._starts, offset) - 1
        if self._last[0] != which:
            extent, metas, number = self._storages[which]
            self._last = which, redact_storage(self._read(extent), metas, self._words, number)
        start = offset - self._starts[which]
        return self._last[1][start : start + length]
