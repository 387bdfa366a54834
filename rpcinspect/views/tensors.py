"""A message's tensors as views show them: which bytes are there, their hash and their first values.

In: a record and the captures' bytes. Out: plain values; bytes are read only when asked for.
"""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import logical_nbytes, sha256
from rpcinspect.wire.ranges import CaptureBytes
from rpcinspect.wire.records import Placement, TpTensor


class TensorPlace(Struct, frozen=True):
    """What the wire says of the storage of one torch tensor."""

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
        target = device.type if device.type == "cpu" or device.index < 0 else f"{device.type}:{device.index}"
    return TensorPlace(storage.descriptor.length, storage.missing_bytes, storage.placement, target)


def _place_of_parts(record: RpcRecord, meta: TensorMeta) -> TensorPlace:
    """A sparse tensor is as certain as its least certain part."""
    places = [place_of(record, record.rpc.tensors[part]) for _, part in meta.parts]
    if not places:
        return NO_STORAGE
    worst = max((p.placement for p in places), key=list(Placement).index)
    return TensorPlace(None, 0, worst, places[0].target_device)


def hash_of(record: RpcRecord, meta: TensorMeta, source: CaptureBytes) -> str | None:
    """sha256 over the logical elements; None for sparse tensors and where a byte is missing or uncertain."""
    data = bytes_of(record, meta, source)
    if data is None or not affordable(record, meta, len(data), source):
        return None
    try:
        return sha256(meta, data)
    except DecodeError:
        return None


def affordable(record: RpcRecord, meta: TensorMeta, storage_nbytes: int, source: CaptureBytes) -> bool:
    """Whether the elements of a tensor may be gone through: those of one that has its storage for itself may,
    which are no more than were captured. See `CaptureBytes.affords`.
    """
    size = logical_nbytes(meta)
    own = size <= storage_nbytes and len(record.like.tensors) <= len(record.tp.tensors)
    return own or source.affords(max(size, storage_nbytes))


def bytes_of(record: RpcRecord, meta: TensorMeta, source: CaptureBytes) -> bytes | None:
    """The whole storage of a tensor; None where not all of it is there."""
    storage = storage_of(record, meta)
    if storage is None or storage.extent is None or storage.extent.missing:
        return None
    return storage.extent.read(source)
