"""Messages ⇄ bytes: blocks of messages for stores and for the index beside a capture.

In: `TpMessage`s that follow each other, and how their pipes have changed meanwhile. Out: a block of bytes,
which a `BlockReader` turns into equal messages again; `DecodeError` where the bytes are no such block. What
equal messages share is one object again: pipe, descriptor, flow. A descriptor is kept as its bytes, and read
by the same code that reads those of a capture.

A block may come from a file that anybody can have written. Every number in it is held to what a capture can
have: nothing lies outside of the captures, and no more is made than there are bytes in the block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import add
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.control import read_descriptor
from rpcinspect.tensorpipe.control_types import ControlLayout, TpDescriptor
from rpcinspect.tensorpipe.frame import HEADER_BYTES
from rpcinspect.tensorpipe.records import Pipe, Placement, TpMessage, TpTensor

LAYER = "index"
MAX_SHAPES, MAX_FLOWS = 4096, 1 << 16
"""Of each so many are kept, so that equal ones are one object."""
MAX_SHAPE_BYTES = 1 << 22

T = TypeVar("T")
StoredInt: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
StoredCount: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
StoredSize: TypeAlias = Annotated[int, Meta(ge=0)]
Change: TypeAlias = tuple[StoredCount, bytes]
"""(place in a block, pipe): what is known of a pipe when the message at that place becomes complete."""

PLACEMENTS = tuple(Placement)
FROM_CLIENT, AFTER_LOSS = 1, 2


class StoredTensor(Struct, array_like=True, frozen=True, gc=False):
    """A `TpTensor` without its descriptor."""

    placement: Annotated[int, Meta(ge=0, lt=len(PLACEMENTS))]
    length: StoredSize | None
    """Of its extent; None without one."""
    pieces: tuple[tuple[StoredCount, StoredCount, StoredCount], ...]
    missing: tuple[tuple[StoredSize, StoredSize], ...]


class StoredMessage(Struct, array_like=True, frozen=True, gc=False):
    """A `TpMessage`; pipe, descriptor and flow are numbers."""

    pipe: StoredCount
    flags: Annotated[int, Meta(ge=0, le=FROM_CLIENT | AFTER_LOSS)]
    shape: StoredCount
    payloads: tuple[bytes, ...]
    payload_missing: tuple[StoredSize, ...] | None
    tensors: tuple[StoredTensor, ...]
    first_ns: StoredInt
    last_ns: StoredInt
    capture: Annotated[int, Meta(ge=0, lt=1 << 31)]
    packet: StoredInt
    packets_before: StoredInt
    """How many packets its lowest one comes before that."""
    packets_after: StoredInt
    """How many its highest one comes after it."""
    flow: StoredCount
    offset: StoredInt
    length: StoredSize | None
    """None: that of all its frames."""
    payloads_ns: tuple[StoredInt, StoredInt] | None
    hashes: tuple[str | None, ...] = ()


class StoredFlow(Struct, array_like=True, frozen=True, gc=False):
    """A `Flow` whose names may have any bytes."""

    source: bytes
    source_port: StoredCount
    destination: bytes
    destination_port: StoredCount


class StoredBlock(Struct, array_like=True, frozen=True):
    """Messages, and what several of them have."""

    bodies: list[bytes]
    """Of descriptors."""
    flows: list[StoredFlow]
    changes: list[Change]
    """By their places."""
    messages: list[StoredMessage]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(StoredBlock)


def pack(messages: Sequence[TpMessage], changes: Sequence[Change] = ()) -> bytes:
    """Returns a block of these messages; of `changes` the places are among them."""
    bodies: dict[bytes, tuple[int, int]] = {}
    flows: dict[Flow, int] = {}
    rows = []
    for tp in messages:
        body = tp.descriptor_body
        shape = bodies.get(body)
        if shape is None:
            shape = bodies[body] = len(bodies), _length(body, tp.descriptor)
        flow = flows.setdefault(tp.flow, len(flows))
        rows.append(
            StoredMessage(
                tp.pipe.number,
                FROM_CLIENT * tp.from_client | AFTER_LOSS * tp.after_loss,
                shape[0],
                tp.payloads,
                tp.payload_missing,
                tuple([_stored(tensor) for tensor in tp.tensors]) if tp.tensors else (),
                tp.first_ns,
                tp.last_ns,
                tp.capture,
                tp.packet,
                tp.packet - tp.first_packet,
                tp.last_packet - tp.packet,
                flow,
                tp.offset,
                None if tp.length == shape[1] else tp.length,
                tp.payloads_ns,
                tp.hashes,
            )
        )
    ends = [
        StoredFlow(_bytes(a.host), a.port, _bytes(b.host), b.port)
        for a, b in ((flow.source, flow.destination) for flow in flows)
    ]
    return _ENCODER.encode(StoredBlock(list(bodies), ends, list(changes), rows))


def _stored(tensor: TpTensor) -> StoredTensor:
    place, extent = PLACEMENTS.index(tensor.placement), tensor.extent
    if extent is None:
        return StoredTensor(place, None, (), ())
    return StoredTensor(place, extent.length, extent.pieces, extent.missing)


def _length(body: bytes, descriptor: TpDescriptor) -> int:
    """Returns the bytes of all frames of a message without its tensors."""
    return HEADER_BYTES + len(body) + sum([HEADER_BYTES + one.length for one in descriptor.payloads])


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class _Shape(Struct, frozen=True, gc=False):
    """A descriptor, and what follows from it."""

    body: bytes
    descriptor: TpDescriptor
    layout: ControlLayout
    lengths: list[int]
    whole: int
    """Bytes of all frames of such a message."""


class BlockReader:
    """Makes messages of blocks."""

    def __init__(
        self,
        pipes: Mapping[int, Pipe],
        sizes: Sequence[int] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """`pipes`: those of the messages, by number; `sizes`: bytes of each capture, in which all places
        are, None where the blocks are of this process."""
        self._pipes = pipes
        self._sizes = sizes
        self._limits = limits
        self._shapes: dict[bytes, _Shape] = {}
        self._shapes_bytes = 0
        self._flows: dict[StoredFlow, Flow] = {}

    def read(self, data: bytes) -> tuple[list[TpMessage], list[Change]]:
        """Returns the messages of a block, and the changes of their pipes. Raises `DecodeError`."""
        try:
            block = _DECODER.decode(data)
            shapes = [self._shape(body) for body in block.bodies]
            flows = [self._flow(flow) for flow in block.flows]
            return [self._message(one, shapes, flows) for one in block.messages], block.changes
        except (msgspec.MsgspecError, IndexError, KeyError, RecursionError) as error:
            raise DecodeError(LAYER, f"no block of messages: {error}") from error

    def _shape(self, body: bytes) -> _Shape:
        shape = self._shapes.get(body)
        if shape is None:
            descriptor, layout = read_descriptor(body, self._limits)
            lengths = [payload.length for payload in descriptor.payloads]
            shape = _Shape(body, descriptor, layout, lengths, _length(body, descriptor))
            self._shapes_bytes += len(body)
            if len(self._shapes) >= MAX_SHAPES or self._shapes_bytes > MAX_SHAPE_BYTES:
                self._shapes.clear()
                self._shapes_bytes = len(body)
            self._shapes[body] = shape
        return shape

    def _flow(self, stored: StoredFlow) -> Flow:
        flow = self._flows.get(stored)
        if flow is None:
            if len(self._flows) >= MAX_FLOWS:
                self._flows.clear()
            hosts = [one.decode("utf-8", "surrogateescape") for one in (stored.source, stored.destination)]
            source, destination = map(Endpoint, hosts, (stored.source_port, stored.destination_port))
            flow = self._flows[stored] = Flow(source, destination)
        return flow

    def _message(self, stored: StoredMessage, shapes: Sequence[_Shape], flows: Sequence[Flow]) -> TpMessage:
        shape = shapes[stored.shape]
        missing, sizes = stored.payload_missing, self._sizes
        lengths = [len(payload) for payload in stored.payloads]
        if lengths != shape.lengths and not _cut(lengths, missing, shape.lengths):
            raise DecodeError(LAYER, "payloads are longer or shorter than their descriptor says")
        if sizes is not None and stored.capture >= len(sizes):
            raise DecodeError(LAYER, "a message lies in a capture that is not there")
        return TpMessage(
            self._pipes[stored.pipe],
            bool(stored.flags & FROM_CLIENT),
            shape.descriptor,
            shape.layout,
            shape.body,
            stored.payloads,
            missing,
            self._tensors(stored.tensors, shape.descriptor) if stored.tensors else (),
            0,
            stored.first_ns,
            stored.last_ns,
            stored.capture,
            stored.packet,
            stored.packet - stored.packets_before,
            stored.packet + stored.packets_after,
            flows[stored.flow],
            stored.offset,
            shape.whole if stored.length is None else stored.length,
            bool(stored.flags & AFTER_LOSS),
            True,
            stored.payloads_ns,
            stored.hashes,
        )

    def _tensors(self, stored: tuple[StoredTensor, ...], descriptor: TpDescriptor) -> list[TpTensor]:
        if len(stored) != len(descriptor.tensors):
            raise DecodeError(LAYER, "a message has other tensors than its descriptor says")
        tensors = []
        for one, announced in zip(stored, descriptor.tensors, strict=True):
            extent = None
            if one.length is not None:
                extent = Extent(one.length, one.pieces, one.missing)
                if self._sizes is not None:
                    self._check(extent, announced.length, self._sizes)
            placement = PLACEMENTS[one.placement]
            if (extent is None) is (placement is Placement.CERTAIN):
                raise DecodeError(LAYER, "a tensor without a certain place has one, or the other way round")
            tensors.append(TpTensor(announced, placement, extent))
        return tensors

    @staticmethod
    def _check(extent: Extent, length: int, sizes: Sequence[int]) -> None:
        """Raises `DecodeError` for an extent that no capture of these sizes has."""
        at = 0
        for start, stop in extent.missing:
            if not at <= start < stop:
                raise DecodeError(LAYER, "missing bytes of a tensor are out of order")
            at = stop
        gone = sum([stop - start for start, stop in extent.missing])
        captures, offsets, lengths = zip(*extent.pieces, strict=True) if extent.pieces else ((), (), ())
        if at > length or sum(lengths) + gone != length or extent.length != length:
            raise DecodeError(LAYER, "a tensor has more or fewer bytes than its descriptor says")
        for capture in set(captures):
            ends = map(add, offsets, lengths) if len(sizes) == 1 else _ends_in(capture, extent)
            if capture >= len(sizes) or max(ends) > sizes[capture]:
                raise DecodeError(LAYER, "bytes of a tensor lie outside of the captures")


def _ends_in(capture: int, extent: Extent) -> list[int]:
    """Returns where the pieces in one capture end."""
    return [offset + length for its, offset, length in extent.pieces if its == capture]


def _cut(lengths: list[int], missing: tuple[int, ...] | None, announced: list[int]) -> bool:
    """Whether payloads of these lengths may be what is left of announced ones."""
    if missing is None or not len(lengths) == len(missing) == len(announced):
        return False
    return all(there + gone <= whole for there, gone, whole in zip(lengths, missing, announced, strict=True))


def furthest(messages: Iterable[TpMessage]) -> int:
    """Returns where in its capture the last byte of their tensors ends."""
    extents = (tensor.extent for tp in messages for tensor in tp.tensors)
    pieces = chain.from_iterable(extent.pieces for extent in extents if extent is not None)
    return max((offset + length for _, offset, length in pieces), default=0)


# --- what is not a message: pipes and other facts, of which there are few ---


def to_json(value: object) -> bytes:
    """Returns structures as JSON in ASCII: names may have bytes that are no UTF-8."""
    return json.dumps(msgspec.to_builtins(value, str_keys=True)).encode()


def from_json(data: bytes, kind: type[T]) -> T:
    """Returns the structure that `to_json` has written. Raises `DecodeError`."""
    try:
        found: Any = json.loads(data, parse_int=_number)
        return msgspec.convert(found, kind, str_keys=True)
    except (ValueError, RecursionError) as error:  # msgspec's errors are of the first kind
        raise DecodeError(LAYER, f"no {kind.__name__}: {str(error)[:200]}") from error


def _number(text: str) -> int:
    """Returns a number of JSON. Raises `ValueError` for one that no field of a capture holds."""
    number = int(text)
    if not -(1 << 63) <= number < 1 << 64:
        raise ValueError("a number has more than 64 bits")
    return number


def pipe_state(pipe: Pipe) -> tuple[object, ...]:
    """Returns what may change of a pipe while messages come."""
    return *astuple(pipe), len(pipe.invisible_channels)  # the set itself grows


def become(pipe: Pipe, other: Pipe) -> None:
    """Makes a pipe what another one is."""
    for name in Pipe.__struct_fields__:
        setattr(pipe, name, getattr(other, name))
