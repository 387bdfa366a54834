"""`zero-gradient`: gradients that were sent and are all zeros.

Most gradients are told by their first bytes, so that only those which begin with zeros are read whole. Kept
are the rows of messages all of whose gradients are zeros, and of those with some.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rpcinspect.checks.check import Check, MessageGroups, finding_of
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.dtypes import DTYPES, DType
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import plain_range
from rpcinspect.session.model import Finding
from rpcinspect.session.provenance import MessageKind
from rpcinspect.session.words import counted, numbers
from rpcinspect.tcp.ranges import CaptureBytes, Extent

PEEK = 64
"""Bytes that are looked at first, where the first element is a zero."""
SIGNS = b"\0\x80"
"""What -0 and 0 are made of."""
CHUNK = 1 << 20


class ZeroGradients(Check):
    KINDS = (MessageType.BACKWARD_AUTOGRAD_REQ,)

    def __init__(self, source: CaptureBytes) -> None:
        self._groups = MessageGroups()
        self._source = source

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        command, tensors = record.like.command, record.like.tensors
        grads = command.grads if type(command) is PropagateGradientsReq else ()
        if any(i < len(tensors) and all_zeros(record, tensors[i], self._source) for i in grads):
            self._groups.add(record.row, "")
        return True

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        for group in self._groups.gathered(evidence):
            yield finding_of(
                group,
                "zero-gradient",
                "info",
                f"{counted(len(group.indexes), 'gradient message')} {group.way} ({numbers(group.indexes)}) "
                "carried gradients that are all zeros.",
                "Often these belong to results that were never used: return, or send, only what is needed.",
            )


def all_zeros(record: RpcRecord, meta: TensorMeta, source: CaptureBytes) -> bool:
    """Whether a gradient certainly has elements, or is sparse, and all of them are zeros."""
    if meta.layout != "strided":
        values = dict(meta.parts).get("values")
        if values is None or values >= len(record.like.tensors):
            return False
        part = record.like.tensors[values]
        return 0 in part.sizes or all_zeros(record, part, source)
    if meta.storage is None or meta.storage >= len(record.tp.tensors) or 0 in meta.sizes:
        return False
    extent = record.tp.tensors[meta.storage].extent
    if extent is None or extent.missing or not extent.pieces:
        return False
    dtype = DTYPES[meta.dtype]
    if not meta.storage_offset:
        capture, offset, length = extent.pieces[0]
        first = source.read(capture, offset, min(length, dtype.item_bytes))
        if first.strip(SIGNS):  # nearly every gradient is told by its first element
            return False
    # of what is no plain range of its storage, the whole storage must be zeros
    start, end = plain_range(meta, extent.length) or (0, extent.length)
    return end > start and _all_zero(source, extent, start, end, _unit(dtype))


def _all_zero(source: CaptureBytes, extent: Extent, start: int, end: int, unit: int) -> bool:
    """Whether all elements of [start, end) are 0 or -0."""
    at = 0
    size = PEEK
    for capture, offset, length in extent.part(start, end).pieces:
        read = 0
        while read < length:
            size = min(size, length - read)
            data = source.read(capture, offset + read, size)
            if data.count(0) != size and not _only_signs(data, at + read, unit):
                return False
            read, size = read + size, CHUNK
        at += length
    return True


def _unit(dtype: DType) -> int:
    """Returns the bytes of a number that may be -0; 0 where there is none, or not the same one in all
    formats."""
    unit = dtype.item_bytes // 2 if dtype.kind == "complex" else dtype.item_bytes
    return unit if dtype.kind in ("float", "complex") and unit > 1 else 0


def _only_signs(data: bytes, position: int, unit: int) -> bool:
    """Whether only sign bits are set: the highest of each number's last byte."""
    if not unit:
        return False
    octets = np.frombuffer(data, np.uint8)
    last = (np.arange(position, position + len(data)) % unit) == unit - 1
    return not np.any(octets[~last]) and not np.any(octets[last] & 0x7F)
