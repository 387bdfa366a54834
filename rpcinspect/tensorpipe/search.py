"""Where the next descriptor begins in a stream of which the places of frames are not known.

In: a stream and a position in it. Out: the start of a descriptor's frame, told by the bytes that every
descriptor of torch's agent begins with and by what must follow. Work is bounded: lost ranges are skipped, and
only so many bytes are spent on candidates that turn out to be none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rpcinspect.errors import DecodeError
from rpcinspect.limits import Limits
from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.control import DESCRIPTOR_SIGNATURE, SIGNATURE_OFFSET
from rpcinspect.tensorpipe.control_types import ControlLayout
from rpcinspect.tensorpipe.frame import HEADER, HEADER_BYTES, announced

SEARCH_BYTES = 1 << 20
MAX_DISTANCE = max(SIGNATURE_OFFSET.values())
HEAD_1_8 = b"\xb8\x04"
"""What 1.8 writes between the length of the frame and the signature."""

SMALL_BYTES = 4096
BUDGET_BYTES = 1 << 25
"""What larger candidates may cost, beside four times what was searched; later ones are passed over."""

ReadLengths = Callable[[bytes], tuple[ControlLayout, Sequence[int]]]
"""A descriptor's body → its layout and the lengths of its payloads; raises `DecodeError`."""


class DescriptorSearch:
    """Searches for descriptors as the stream grows; the result does not depend on how the stream was cut."""

    __slots__ = ("_begin", "_limits", "_lowest", "_read", "_spent", "position", "stream")

    def __init__(self, stream: Stream, position: int, read: ReadLengths, limits: Limits) -> None:
        self.stream = stream
        self.position = position
        """No signature is before this position."""
        self._lowest = self._begin = position
        self._read = read
        self._limits = limits
        self._spent = 0

    @property
    def needed(self) -> int:
        """What lies before this position won't be looked at again."""
        return max(self._lowest, self.position - MAX_DISTANCE)

    def go_on(self, position: int) -> None:
        """Searches from that position on, which no frame may begin before."""
        self.position = self._lowest = position

    def find(self) -> int | None:
        """The start of the next descriptor's frame, behind which the search would go on; None: not yet."""
        stream, end = self.stream, self.stream.end
        if end is None:
            return None
        size = len(DESCRIPTOR_SIGNATURE)
        while end - self.position >= size:
            hole = stream.next_hole(self.position) if stream.holes else None
            if hole is not None and hole[0] <= self.position:
                self.position = self._lowest = min(hole[1], end)
                continue
            edge = end if hole is None else min(end, hole[0])
            stop = min(edge, self.position + SEARCH_BYTES)
            data = stream.read(self.position, stop)
            at = data.find(DESCRIPTOR_SIGNATURE)
            while at >= 0:
                signature = self.position + at
                start = self._candidate(signature)
                if start is None:
                    self.position = signature
                    return None
                if start >= 0:
                    self.position = signature + 1
                    return start
                at = data.find(DESCRIPTOR_SIGNATURE, at + 1)
            self.position = stop if stop == edge and edge < end else stop - size + 1
        return None

    def _candidate(self, signature: int) -> int | None:
        """Start of the descriptor's frame around a signature; -1: there is none; None: not yet."""
        stream, end = self.stream, self.stream.end
        assert end is not None
        low = max(self._lowest, signature - MAX_DISTANCE)
        head = stream.read(low, signature)
        layout = ControlLayout.V1_8 if head.endswith(HEAD_1_8) else ControlLayout.V1_9
        start = signature - SIGNATURE_OFFSET[layout]
        if start < low:
            return -1
        length = HEADER.unpack_from(head, start - low)[0]
        if length > self._limits.control_frame_bytes:
            return -1
        behind = start + HEADER_BYTES + length
        if behind > end:
            return None if length < SEARCH_BYTES and not stream.finished else -1
        if stream.holes and stream.missing(start, behind):
            return -1
        if length > SMALL_BYTES:
            self._spent += length
            if self._spent > BUDGET_BYTES + 4 * (signature - self._begin):
                return -1
        try:
            found, lengths = self._read(stream.read(start + HEADER_BYTES, behind))
        except DecodeError:
            return -1
        if found is not layout:
            return -1
        return self._check_payloads(start, behind, lengths)

    def _check_payloads(self, start: int, behind: int, lengths: Sequence[int]) -> int | None:
        """The frames of type, id and payload must have the lengths that the descriptor gives."""
        stream, end = self.stream, self.stream.end
        assert end is not None
        for length in lengths[:3]:
            if behind + HEADER_BYTES > end:
                return start if stream.finished else None
            if announced(stream, behind) not in (None, length):
                return -1
            behind += HEADER_BYTES + length
        return start
