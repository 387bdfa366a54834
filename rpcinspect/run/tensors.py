"""A message's tensors as views show them: which bytes are there, their hash and their first values.

In: a record and the captures' bytes. Out: plain values; bytes are read only when asked for.
"""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import logical_nbytes, sha256
from rpcinspect.tcp.ranges import CaptureBytes, Extent
from rpcinspect.tensorpipe.records import Placement, TpTensor


class TensorPlace(Struct, frozen=True):
    """Place of the storage of one torch tensor on the wire."""

    storage_nbytes: int | None
    missing_bytes: int
    placement: Placement
    target_device: str | None


NO_STORAGE = TensorPlace(None, 0, Placement.CERTAIN, None)
"""Of a sparse tensor: its parts have storages."""


def storage_of(record: RpcRecord, meta: TensorMeta) -> TpTensor | None:
    """The TensorPipe tensor that holds a tensor's bytes; None for sparse layouts and broken tables."""
    index = meta.storage
    tensors = record.tp.tensors
    return tensors[index] if index is not None and index < len(tensors) else None


def place_of(record: RpcRecord, meta: TensorMeta) -> TensorPlace:
    """Length, what is missing, how sure the place is, and where the tensor is going."""
    storage = storage_of(record, meta)
    if storage is None:
        if meta.storage is None:
            return _place_of_parts(record, meta)
        return TensorPlace(None, 0, Placement.MISSING, None)
    device = storage.descriptor.target_device
    target = None
    if device is not None:
        target = str(device)
    return TensorPlace(storage.descriptor.length, storage.missing_bytes, storage.placement, target)


def _place_of_parts(record: RpcRecord, meta: TensorMeta) -> TensorPlace:
    """A sparse tensor is as certain as its least certain part."""
    places = [place_of(record, record.rpc.tensors[part]) for _, part in meta.parts]
    if not places:
        return NO_STORAGE
    worst = max((p.placement for p in places), key=list(Placement).index)
    return TensorPlace(None, 0, worst, places[0].target_device)


class LastRead:
    """Reads storages; keeps the last one, since several tensors may share it."""

    def __init__(self, source: CaptureBytes) -> None:
        self.source = source
        self._extent: Extent | None = None
        self._data = b""
        self.hashes: dict[TensorMeta, str] = {}
        """Of tensors in this storage: one may be listed thousands of times."""

    def __call__(self, extent: Extent) -> bytes:
        if extent is not self._extent:
            self._extent, self._data = extent, extent.read(self.source)
            self.hashes = {}
        return self._data

    def holds(self, extent: Extent) -> bool:
        """Returns whether this storage is the one in memory."""
        return extent is self._extent


def hash_of(record: RpcRecord, meta: TensorMeta, read: LastRead) -> str | None:
    """sha256 over the logical elements; None for sparse tensors and where a byte is missing or uncertain."""
    extent = whole_storage(record, meta)
    if extent is None:
        return None
    known = read.hashes.get(meta) if read.holds(extent) else None
    if known is not None:
        return known
    if not affordable(record, meta, read):
        return None
    try:
        digest = sha256(meta, read(extent))
    except DecodeError:
        return None
    read.hashes[meta] = digest
    return digest


def affordable(record: RpcRecord, meta: TensorMeta, read: LastRead) -> bool:
    """Returns whether the elements of a tensor with a whole storage may be read: always where the tensor has
    the storage for itself, since the elements are no more than were captured; else see
    `CaptureBytes.affords`."""
    extent = whole_storage(record, meta)
    if extent is None:
        return False
    size = logical_nbytes(meta)
    own = size <= extent.length and len(record.like.tensors) <= len(record.tp.tensors)
    return own or read.source.affords(size if read.holds(extent) else max(size, extent.length))


def bytes_of(record: RpcRecord, meta: TensorMeta, read: LastRead) -> bytes | None:
    """The whole storage of a tensor; None where not all of it is there."""
    extent = whole_storage(record, meta)
    return None if extent is None else read(extent)


def whole_storage(record: RpcRecord, meta: TensorMeta) -> Extent | None:
    """Where all bytes of a tensor's storage are; None where not all of them are there."""
    storage = storage_of(record, meta)
    if storage is None or storage.extent is None or storage.extent.missing:
        return None
    return storage.extent
