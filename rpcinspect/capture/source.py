"""The bytes of one input, readable at any offset, whatever it came from.

In: a path, or `-` for standard input. Out: a `Source` that gives windows of the file one after the other and
any range again later. A plain file is read with pread and never mapped (mapped pages count as memory of the
process). Whatever can't be read twice (pipes, gzip, Zstandard) goes to a deleted temporary file on its way,
of which what nobody will read again is given back. Compression is told by magic bytes, never by the name.
Only `CaptureError` is raised.

Compressed input is unpacked up to a bound, and any up to the room that there is for temporary files; it ends
there, and says so.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Iterator
from typing import IO

import numpy as np

from rpcinspect.capture.block import Int64s
from rpcinspect.capture.unpack import DECOMPRESSORS, ReportReason, compression_of
from rpcinspect.errors import CaptureError, NoRoomError
from rpcinspect.files.closing import Closing
from rpcinspect.files.temporary import HOLE_BYTES, Temporary, read_range
from rpcinspect.limits import DEFAULT_UNPACKING, Unpacking

WINDOW = 1 << 22
"""Bytes of a window, unless one record is larger: big enough for numpy, small beside the interpreter."""

STDIN_NAME = "standard input"

ASIDE = 1 << 62
"""Offsets from here on are those of bytes that were put aside."""

_CHUNK = 1 << 16
_LOOK_MS = 200
GRACE_S = 1.0


class Source(Closing):
    """A plain file; base of the spooled one."""

    complete = True
    """Whether all of the input can be read by now, in any order."""

    def __init__(self, name: str, descriptor: int, compression: str | None = None) -> None:
        self.name = name
        self.compression = compression
        self.read_to = 0
        """End of the furthest window so far: bytes of the (uncompressed) input that were read."""
        self.ended_early: str | None = None
        """Why there is more of the input than is read."""
        self.state = os.fstat(descriptor)
        """That of the file when it was opened."""
        self._descriptor = descriptor
        self._aside: Temporary | None = None
        self._aside_bytes = 0

    def window(self, offset: int, minimum: int) -> bytes:
        """Bytes from `offset` on: about `WINDOW`, at least `minimum`, fewer only at the end of the input.

        A pipe gives what has arrived once that is `minimum` or more.
        """
        data = self.pread(offset, max(WINDOW, minimum))
        self.read_to = max(self.read_to, offset + len(data))
        return data

    def pread(self, offset: int, length: int) -> bytes:
        """Any range of what was read so far, or put aside; shorter where the input ends."""
        if offset >= ASIDE and self._aside is not None:
            return self._aside.pread(offset - ASIDE, length)
        try:
            return read_range(self._descriptor, offset, length)
        except OSError as error:
            raise CaptureError(f"{self.name}: {error.strerror}") from error

    def put_aside(self, data: bytes | memoryview) -> int:
        """Keeps what was made of the input; returns the offset by which `pread` gives it."""
        if self._aside is None:
            self._aside = Temporary()
        offset = ASIDE + self._aside_bytes
        self._aside_bytes += self._aside.write(data)
        return offset

    def give_back(self, start: int, stop: int) -> None:
        """Declares that this range will never be read again."""

    def keep(self, offsets: Int64s, lengths: Int64s, end: int) -> None:
        """Declares what will be read again before `end` and after the `end` of the previous call."""

    def shared(self) -> tuple[str, tuple[int, ...]]:
        """A name by which another program can open the whole (uncompressed) input, and the descriptors that
        it must inherit for that. Reads a stream to its end.
        """
        if self.name == STDIN_NAME or self.name.startswith("/dev/fd/"):
            return self._inherited()
        # a name is never taken for an option
        return (f"./{self.name}" if self.name.startswith("-") else self.name), ()

    def _inherited(self) -> tuple[str, tuple[int, ...]]:
        os.lseek(self._descriptor, 0, os.SEEK_SET)  # shared with who opens it by this name, on some systems
        return f"/dev/fd/{self._descriptor}", (self._descriptor,)

    def progress(self) -> tuple[int, int | None]:
        """(bytes of the input that were read, as it is stored; all of them, None where nobody knows)."""
        size = self.size()
        return min(self.read_to, size), size

    def size(self) -> int:
        """Bytes of the (uncompressed) input, as far as it has come."""
        return os.fstat(self._descriptor).st_size

    def end(self) -> bool:
        """Ends an input that is still being written, soon: what its writer has sent, and what it sends within
        a second, is still read. False for inputs that end by themselves. May be called by a signal handler.
        """
        return False

    def close(self) -> None:
        """Close the descriptors; closing twice is fine."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
        if self._aside is not None:
            self._aside.close()


class SpooledSource(Source):
    """A stream of pieces that is written to a deleted temporary file as far as windows are asked for."""

    complete = False

    def __init__(
        self, name: str, stream: InputStream, head: bytes, report: ReportReason, unpacking: Unpacking
    ) -> None:
        self._stream = stream
        self._spool = Temporary()
        compression = compression_of(head)
        super().__init__(name, os.dup(self._spool.fileno()), compression)
        chunks = _chunks(head, stream)
        self._pieces = DECOMPRESSORS[compression](chunks, report) if compression else chunks
        self._report = report
        self._unpacking = unpacking
        self._size = 0
        self._kept_to = 0
        self._ended = False

    def window(self, offset: int, minimum: int) -> bytes:
        while not self._ended and self._size < offset + WINDOW:
            if self._size >= offset + minimum and not self._stream.ready():
                break
            self._spool_piece()
        while not self._ended and self._size < offset + minimum:
            self._spool_piece()
        return super().window(offset, minimum)

    def _spool_piece(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            self._ended = True
            return
        allowed = self._unpacking.allowed(self._stream.packed()) if self.compression else None
        too_much = allowed is not None and self._size + len(piece) > allowed
        if allowed is not None and too_much:
            piece = piece[: max(0, allowed - self._size)]
        try:
            self._spool.write(piece)
            self._size += len(piece)
        except NoRoomError as error:
            self._end_early(f"the rest is not read: {error}")
            return
        if too_much:
            self._end_early(
                f"the {self.compression} data hold more than {self._size:,} bytes, much for what they take "
                "packed: the rest is not read; --unpack-limit sets another limit"
            )

    def _end_early(self, reason: str) -> None:
        self._ended = True
        self.ended_early = reason
        self._report(reason)

    def give_back(self, start: int, stop: int) -> None:
        self._spool.give_back(start, stop)

    def keep(self, offsets: Int64s, lengths: Int64s, end: int) -> None:
        order = np.argsort(offsets, kind="stable")
        starts = np.concatenate((offsets[order], [end]))
        before = np.concatenate(([self._kept_to], (offsets + lengths)[order]))
        np.maximum.accumulate(before, out=before)
        for gap in np.flatnonzero(starts - before >= HOLE_BYTES).tolist():
            self._spool.give_back(int(before[gap]), int(starts[gap]))
        self._kept_to = max(self._kept_to, end)

    def progress(self) -> tuple[int, int | None]:
        return self._stream.progress() or (self._size, None)

    def shared(self) -> tuple[str, tuple[int, ...]]:
        while not self._ended:
            self._spool_piece()
        return self._inherited()

    def end(self) -> bool:
        return self._stream.end()

    def close(self) -> None:
        super().close()
        self._spool.close()
        self._stream.close()


class InputStream:
    """Something read front to back: a descriptor, or a file object (standard input set by a test)."""

    grace_s = GRACE_S
    """How long what comes is still taken after `end`."""

    def __init__(self, name: str, descriptor: int | None, file: IO[bytes] | None, live: bool) -> None:
        self._name = name
        self._descriptor = descriptor
        self._file = file
        self._live = live
        self._deadline: float | None = None
        self._taken = 0

    def end(self) -> bool:
        if self._live and self._deadline is None:
            self._deadline = time.monotonic() + self.grace_s
        return self._live

    def progress(self) -> tuple[int, int] | None:
        """(bytes read, bytes that there are) of a file."""
        if self._live or self._descriptor is None:
            return None
        return os.lseek(self._descriptor, 0, os.SEEK_CUR), os.fstat(self._descriptor).st_size

    def read(self, size: int) -> bytes:
        """Returns up to `size` bytes of the input, waiting only while there are none; no bytes at its end."""
        try:
            if self._descriptor is None:
                assert self._file is not None
                data = self._file.read(size)
            else:
                data = os.read(self._descriptor, size) if self._wait() else b""
        except OSError as error:
            raise CaptureError(f"{self._name}: {error.strerror or error}") from error
        self._taken += len(data)
        return data

    def packed(self) -> int:
        """Bytes of all of a file, or of what has come by now."""
        progress = self.progress()
        return self._taken if progress is None else max(self._taken, progress[1])

    def ready(self) -> bool:
        """Returns whether `read` would return without waiting."""
        if not self._live:
            return True
        return self._descriptor is not None and self._poll(0)

    def _wait(self) -> bool:
        """Waits for bytes or for the end of the input; False where `end` has ended it."""
        if not self._live:
            return True
        while self._deadline is None or time.monotonic() < self._deadline:
            if self._poll(_LOOK_MS):  # a signal does not wake a read for good, so waiting is done in steps
                return True
        return False

    def _poll(self, milliseconds: int) -> bool:
        assert self._descriptor is not None
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLIN)
        return bool(waiting.poll(milliseconds))

    def close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


def open_source(path: str, report: ReportReason, unpacking: Unpacking = DEFAULT_UNPACKING) -> Source:
    """Open `path` (`-` is standard input); `report` hears of damaged or truncated compressed data, and of
    input that is not read to its end."""
    name = STDIN_NAME if path == "-" else path
    descriptor = _standard_input() if path == "-" else open_file(path)
    if descriptor is None:
        return spooled(name, InputStream(name, None, sys.stdin.buffer, live=True), report, unpacking)
    try:
        state = os.fstat(descriptor)
        if stat.S_ISDIR(state.st_mode):
            raise CaptureError(f"{name}: is a directory; name the files in it")
        regular = stat.S_ISREG(state.st_mode)
        if regular and os.lseek(descriptor, 0, os.SEEK_CUR) == 0:
            source = Source(name, descriptor)
            if compression_of(source.pread(0, 4)) is None:
                return source
        return spooled(name, InputStream(name, descriptor, None, live=not regular), report, unpacking)
    except BaseException:
        os.close(descriptor)
        raise


def _standard_input() -> int | None:
    """A descriptor of our own, or None where standard input has none."""
    try:
        return os.dup(sys.stdin.fileno())
    except (AttributeError, ValueError, OSError):
        return None


def open_file(path: str) -> int:
    """Returns a descriptor of a file; raises `CaptureError` where it can't be opened."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise CaptureError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def spooled(
    name: str, stream: InputStream, report: ReportReason, unpacking: Unpacking = DEFAULT_UNPACKING
) -> SpooledSource:
    """A stream as a source; waits for its first bytes."""
    head = b""
    while len(head) < 4:
        chunk = stream.read(_CHUNK)
        if not chunk:
            break
        head += chunk
    return SpooledSource(name, stream, head, report, unpacking)


def _chunks(head: bytes, stream: InputStream) -> Iterator[bytes]:
    if head:
        yield head
    while chunk := stream.read(_CHUNK):
        yield chunk
