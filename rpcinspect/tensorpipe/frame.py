"""Ordered bytes → frames: the uv transport writes a u64 length, then that many bytes, and nothing else.

In: a `Stream`. Out: lengths and bodies by position. A cursor keeps a buffer of the stream's small frames so
that most frames cost one slice; large bodies are not read at all unless asked for.

Mirrors `tensorpipe/transport/uv`. A length of 0 is legal.
"""

from __future__ import annotations

from struct import Struct

from rpcinspect.tcp.stream import Stream

HEADER = Struct("<Q")
HEADER_BYTES = 8
BUFFER_BYTES = 1 << 16


def announced(stream: Stream, position: int) -> int | None:
    """The length of the frame at `position`; None where that was not captured whole, or has not come."""
    end, first = stream.end, stream.kept_from
    stop = position + HEADER_BYTES
    if end is None or first is None or position < first or stop > end:
        return None
    if stream.holes and stream.missing(position, stop):
        return None
    length: int = HEADER.unpack(stream.read(position, stop))[0]
    return length


class FrameCursor:
    """Reads a stream from `position` on; the owner moves `position` past what was used."""

    __slots__ = ("_buffer", "_buffer_end", "_buffer_start", "position", "stream")

    def __init__(self, stream: Stream, position: int) -> None:
        self.stream = stream
        self.position = position
        self._buffer = b""
        self._buffer_start = self._buffer_end = position

    def available(self) -> int:
        """Settled bytes from `position` on (holes included)."""
        end = self.stream.end
        return 0 if end is None else end - self.position

    def buffer(self, position: int, length: int) -> tuple[bytes, int]:
        """A buffer that holds [position, position + length), all settled, and where in it that begins."""
        if not (self._buffer_start <= position and position + length <= self._buffer_end):
            end = self.stream.end
            assert end is not None
            assert position + length <= end
            stop = min(end, position + max(length, BUFFER_BYTES))
            self._buffer = self.stream.read(position, stop)
            self._buffer_start, self._buffer_end = position, stop
        return self._buffer, position - self._buffer_start

    def length(self, position: int) -> int | None:
        """The length field of the frame at `position`; None: not yet."""
        end = self.stream.end
        if end is None or end - position < HEADER_BYTES:
            return None
        buffer, at = self.buffer(position, HEADER_BYTES)
        value: int = HEADER.unpack_from(buffer, at)[0]
        return value

    def body(self, limit: int) -> bytes | None:
        """The body of the frame at `position`, over which the cursor moves; None: not yet, or longer than
        `limit`.
        """
        length = self.length(self.position)
        if length is None or length > limit or self.available() < HEADER_BYTES + length:
            return None
        buffer, at = self.buffer(self.position, HEADER_BYTES + length)
        self.position += HEADER_BYTES + length
        return buffer[at + HEADER_BYTES : at + HEADER_BYTES + length]

    def damaged(self, length: int) -> bool:
        """Whether any of the next `length` settled bytes was not captured."""
        if not self.stream.holes:
            return False
        return self.stream.missing(self.position, self.position + length) > 0

    def release(self) -> None:
        """Lets the stream forget what lies before `position`, and forgets a large frame."""
        if len(self._buffer) > BUFFER_BYTES:
            self._buffer = b""
            self._buffer_start = self._buffer_end = self.position
        self.stream.release(self.position)
