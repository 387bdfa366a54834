"""One TCP connection that carries frames in both directions and never blocks.

In: a socket, and the owner's word on how long the next frame may be. Out: bodies of frames, in order, and
at most one loss with a reason. The other side may be hostile: no frame takes more memory than has arrived
of it, a length over the owner's bound is an error before any of it is kept, a frame that trickles in is
given up, and so is a connection whose other end does not read.

Mirrors `tensorpipe/transport/uv`, see `tensorpipe/frame.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable

from rpcinspect.replayer.peers.loop import READ, WRITE, Loop
from rpcinspect.replayer.peers.traffic_pcap import TrafficRecorder
from rpcinspect.tensorpipe.frame import HEADER, HEADER_BYTES

READ_BYTES = 1 << 19
JOIN_BYTES = 1 << 16
"""Frames that are sent together are one piece up to this size: fewer, larger writes."""


class FrameConnection:
    """A socket that is connected or being connected, and the frames on it."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_frame: Callable[[bytes], None],
        on_lost: Callable[[str], None],
        *,
        connecting: bool = False,
    ) -> None:
        """`connecting`: the socket is not connected yet, and `open` follows."""
        self._loop = loop
        self._limits = loop.limits
        self._socket = sock
        self.on_frame = on_frame
        self.on_lost = on_lost
        self._connecting = connecting
        self._error = 0
        """Why it could not be opened, if the system has told that already."""
        self._silent = connecting
        """We opened it and have said nothing yet."""
        self._allowed: int | None = None
        self._exact = False
        self._buffer = bytearray()
        self._parsing = False
        self._frame_start = 0.0
        """When the first byte of the frame at the head of the buffer was there."""
        self._out: deque[memoryview] = deque()
        self.queued_bytes = 0
        """Bytes that are still to be written."""
        self._write_progress = time.monotonic()
        self._ended = False
        """The other side sends nothing any more."""
        self.closed = False
        self._local: tuple[str, int] = ("", 0)
        self._remote: tuple[str, int] = ("", 0)
        self._tap: TrafficRecorder | None = None
        """The loop's, once the connection is open and both its ends are known."""
        sock.setblocking(False)
        loop.add_timer(self._check)
        if not connecting:
            self._connected(accepted=True)
        self._watch()

    # --- for the owner -------------------------------------------------------------------------------------

    def open(self, host: str, port: int, *hello: bytes) -> None:
        """Begins to connect; the first frames are sent at once if the other end is there. The loop reports a
        failure later.

        A process that is killed between the two leaves a listener of TensorPipe that never takes another
        connection, see `close`. So nothing comes between them.
        """
        for body in hello:
            self._queue(HEADER.pack(len(body)) + body)
        self._error = self._socket.connect_ex((host, port))
        if self._error in (0, errno.EINPROGRESS):
            self._error = 0
            self._write()
        self._watch()

    def allow(self, length: int | None, *, exact: bool = False) -> None:
        """Sets the length that the next frame may have, or must have; None: reads nothing for now."""
        self._allowed = length
        self._exact = exact
        if not self._parsing and not self.closed:
            self._parse()
            self._watch()

    def send(self, *bodies: bytes) -> None:
        """Queue frames and write what can be written now. How much may wait is the owner's matter."""
        if self.closed:
            return
        parts = [part for body in bodies for part in (HEADER.pack(len(body)), body)]
        for part in [b"".join(parts)] if sum(map(len, parts)) <= JOIN_BYTES else parts:
            self._queue(part)
        if not self._connecting:
            self._write()
        if not self.closed:
            self._watch()

    @property
    def arriving(self) -> bool:
        """Whether a frame was begun by the other side."""
        return bool(self._buffer)

    @property
    def opened(self) -> bool:
        """Whether the other end has taken it; also after it was closed."""
        return not self._connecting

    def close(self, *, reset: bool = False) -> None:
        """Closes the connection without calling the owner. `reset`: as the system does for a process that is
        killed with unread data, by an RST.

        A listener of TensorPipe to which a connection comes that ends without a whole hello never takes
        another one. So the hello is said even now, if the connection may be there already.
        """
        if self.closed:
            return
        self.closed = True
        if self._silent and self._out:
            with contextlib.suppress(OSError):
                self._socket.send(self._out[0])
        self._loop.forget(self)
        self._loop.remove_timer(self._check)
        if reset:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()
        self._out.clear()
        self._buffer.clear()
        if self._tap is not None:
            self._tap.closed(self._local, self._remote)

    # --- for the loop --------------------------------------------------------------------------------------

    def ready(self, events: int) -> None:
        if self._connecting:
            error = self._error or self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._lose(f"could not be opened: {os.strerror(error)}")
                return
        if events & WRITE:
            self._write()
        if events & READ and not self.closed:
            self._read()
        if not self.closed:
            self._watch()

    def _check(self, now: float) -> None:
        timeout = self._limits.timeout_s
        if self._connecting and now - self._write_progress > timeout:
            self._lose(f"could not be opened within {timeout:g} s")
        elif self._out and now - self._write_progress > timeout:
            self._lose(f"the other side has read nothing for {timeout:g} s")
        elif self.arriving:
            seconds = now - self._frame_start
            if seconds > timeout + len(self._buffer) / self._limits.bytes_per_s:
                self._lose(f"a frame is not complete after {seconds:.1f} s")

    # --- inside --------------------------------------------------------------------------------------------

    def _connected(self, *, accepted: bool) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._local, self._remote = self._socket.getsockname()[:2], self._socket.getpeername()[:2]
        except OSError:  # gone again already; reading will tell
            return
        if self._loop.tap is not None:
            self._loop.tap.opened(self._local, self._remote, accepted)
            self._tap = self._loop.tap

    def _watch(self) -> None:
        if self.closed:
            return
        events = WRITE if self._out or self._connecting else 0
        if self._allowed is not None and not self._ended and not self._connecting:
            events |= READ
        self._loop.watch(self, self._socket, events)

    def _queue(self, data: bytes) -> None:
        if not self._out:
            self._write_progress = time.monotonic()
        self._out.append(memoryview(data))
        self.queued_bytes += len(data)

    def _write(self) -> None:
        while self._out:
            head = self._out[0]
            try:
                written = self._socket.send(head)
            except BlockingIOError:
                return
            except OSError as error:
                if not self._connecting:
                    self._lose(f"could not be written: {error.strerror}")
                elif error.errno != errno.ENOTCONN:  # which some systems say instead of BlockingIOError
                    self._error = error.errno or 0
                return
            if self._connecting:
                self._connecting = False
                self._connected(accepted=False)
            if self._tap is not None:
                self._tap.data(self._local, self._remote, True, head[:written])
            self._write_progress = time.monotonic()
            self._silent = False
            self.queued_bytes -= written
            self._out[0] = head[written:]
            if not self._out[0]:
                self._out.popleft()

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(f"could not be read: {error.strerror}")
            return
        if not data:
            self._ended = True
        elif self._tap is not None:
            self._tap.data(self._local, self._remote, False, data)
        if not self._buffer:
            self._frame_start = time.monotonic()
        self._buffer += data
        self._parse()

    def _parse(self) -> None:
        """Hands on every frame that is complete and allowed."""
        self._parsing = True
        try:
            while not self.closed and self._allowed is not None and len(self._buffer) >= HEADER_BYTES:
                length: int = HEADER.unpack_from(self._buffer)[0]
                if length > self._allowed or (self._exact and length != self._allowed):
                    wanted = f"one of {self._allowed:,}" if self._exact else f"at most {self._allowed:,}"
                    self._lose(f"a frame of {length:,} bytes came where {wanted} must be")
                    return
                end = HEADER_BYTES + length
                if len(self._buffer) < end:
                    break
                with memoryview(self._buffer) as view:
                    body = bytes(view[HEADER_BYTES:end])
                del self._buffer[:end]  # the rest stays where it is
                self._frame_start = time.monotonic()
                self.on_frame(body)
        finally:
            self._parsing = False
        if self._ended and self._allowed is not None and not self.closed:
            inside = f" inside a frame ({len(self._buffer):,} bytes of it came)" if self._buffer else ""
            self._lose(f"closed by the other side{inside}")

    def _lose(self, reason: str) -> None:
        self.close()
        self.on_lost(reason)
