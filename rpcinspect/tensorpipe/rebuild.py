"""A descriptor that was not captured, from the message behind it.

In: the range of a stream between a known end of a message and the next descriptor that was found. Out: the
bytes of the one descriptor that explains the whole range, or None. A sender writes a descriptor and each
payload by itself, so one lost packet often takes the descriptor alone; the last payload then tells the
tensors, and sizes tell the rest.

Nothing is assumed: every captured byte of the range must be where the rebuilt descriptor puts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.control import write_descriptor
from rpcinspect.tensorpipe.control_types import (
    ControlLayout,
    TpDescriptor,
    TpDevice,
    TpPayload,
    TpTensorDescriptor,
)
from rpcinspect.tensorpipe.frame import HEADER, HEADER_BYTES

ReadTable = Callable[[bytes], Sequence[int] | None]
"""The last payload of a message → the lengths of the tensors on the wire, all of which are on the CPU; None:
it can't tell. The wire stage does not know what is in a payload, so whoever uses it brings this.
"""

MAX_RANGE_BYTES = 1 << 20
TABLE_STARTS = b"\x80\x02"
"""How the last payload begins (PROTO 2)."""
MAX_TABLES = 4
"""How many last payloads are tried: only by accident or on purpose is there more than one."""
TYPE_AND_ID = (4, 8)
INT_SIZES = (1, 2, 3, 5, 9)
"""Bytes that libnop may take for a length."""
MAX_LENGTH = (1 << 63) - 1
CPU = TpDevice("cpu", 0)


def rebuild(stream: Stream, start: int, end: int, read_table: ReadTable) -> bytes | None:
    """The body of the descriptor frame at `start` if [start, end) is that frame and its message, and only
    that.
    """
    kept = stream.kept_from
    if end - start > MAX_RANGE_BYTES or kept is None or kept > start:
        return None
    data = stream.read(start, end)
    known = _captured(stream, start, end)
    at, tried = data.rfind(TABLE_STARTS), 0
    while at >= HEADER_BYTES and tried < MAX_TABLES:
        if HEADER.unpack_from(data, at - HEADER_BYTES)[0] == len(data) - at:
            if known.find(0, at - HEADER_BYTES) >= 0:
                return None  # what is lost here is lost for every table that begins before
            tried += 1
            lengths = read_table(data[at:])
            if lengths is not None:
                return _explain(data, known, at, lengths)
        at = data.rfind(TABLE_STARTS, 0, at)
    return None


def _explain(data: bytes, known: bytearray, table: int, lengths: Sequence[int]) -> bytes | None:
    """The descriptor whose frame and payload frames are just these bytes, wherever they were captured."""
    if not all(0 <= n <= MAX_LENGTH for n in lengths):
        return None
    tensors = tuple(TpTensorDescriptor(length=n, source_device=CPU, target_device=CPU) for n in lengths)
    before = table - HEADER_BYTES - sum(n + HEADER_BYTES for n in TYPE_AND_ID) - HEADER_BYTES

    def body_for(size: int) -> bytes:
        payloads = tuple(TpPayload(n) for n in (*TYPE_AND_ID, size, len(data) - table))
        return write_descriptor(TpDescriptor(b"", payloads, tensors), ControlLayout.V1_9)

    smallest = len(body_for(0))
    for more in INT_SIZES:  # the descriptor's size depends on how many bytes the payload's length takes
        size = before - HEADER_BYTES - (smallest - 1 + more)
        if size < 0:
            break
        body = body_for(size)
        if len(body) == smallest - 1 + more:
            return body if _agrees(data, known, body, size) else None
    return None


def _agrees(data: bytes, known: bytearray, body: bytes, size: int) -> bool:
    """Whether every captured byte of the frames' lengths and of the descriptor is the expected one; at least
    the length of the payload must have been captured.
    """
    at = HEADER_BYTES + len(body)
    expected = [(0, HEADER.pack(len(body)) + body)]
    for n in (*TYPE_AND_ID, size):
        expected.append((at, HEADER.pack(n)))
        at += HEADER_BYTES + n
    for start, wanted in expected:
        for i, byte in enumerate(wanted, start):
            if known[i] and data[i] != byte:
                return False
    start, wanted = expected[-1]
    return all(known[start : start + len(wanted)])


def _captured(stream: Stream, start: int, end: int) -> bytearray:
    """Returns a byte for each byte of the range, 1 where it was captured."""
    known = bytearray(b"\1") * (end - start)
    hole = stream.next_hole(start)
    while hole is not None and hole[0] < end:
        low, high = max(hole[0], start), min(hole[1], end)
        known[low - start : high - start] = bytes(high - low)
        hole = stream.next_hole(hole[1])
    return known
