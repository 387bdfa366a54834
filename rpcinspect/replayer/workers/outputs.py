"""What the processes of live workers write, to standard output and errors: read at once, whatever it is, so
that none of them ever waits for us; shown line by line, within bounds; its end kept for reports.

In: `Outputs` with somebody who shows lines. Out: a `ProcessOutput` for each process, a pipe. One thread reads
all pipes. Another one shows: a pager that takes no more lines holds up neither the reading nor the replay.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import TypeAlias

from rpcinspect.files.closing import Closing

Show: TypeAlias = Callable[[str, str], None]
"""Called with the name of a process and a line of it, which may hold any character but a line break."""

MAX_LINES = 200
MAX_BYTES = 1 << 16
"""Of each name, that are shown; all processes of that name together, since each session has its own."""
MAX_LINE_BYTES = 1 << 10
"""Of a line."""
TAIL_BYTES = 1 << 14
"""Of an output that are kept."""
READ_BYTES = 1 << 16
MAX_READS = 64
"""At once, of one that never stops writing."""


class Outputs(Closing):
    """The outputs of processes. Use it in a `with` statement: leaving it shows what is left to show."""

    def __init__(self, show: Show | None = None) -> None:
        self._show = show
        self._rooms: dict[str, _Room] = {}
        self._lines: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._news: SimpleQueue[ProcessOutput | None] = SimpleQueue()
        """Outputs to read, or not to read any more."""
        self._wake, self._alarm = socket.socketpair()
        self._threads = [threading.Thread(target=self._read_all, name="outputs of workers", daemon=True)]
        if show is not None:
            self._threads.append(threading.Thread(target=self._show_all, name="their lines", daemon=True))
        for thread in self._threads:
            thread.start()
        self._closed = False

    def new(self, name: str, reader: int | None = None) -> ProcessOutput:
        """A pipe for a process; `name`: what its lines are shown under. `reader`: our end of a pipe that the
        process has already; it is ours to close from now on."""
        room = self._rooms.setdefault(name, _Room()) if self._show is not None else None
        output = ProcessOutput(name, room, self._line, self._tell, reader)
        self._tell(output)
        return output

    def _line(self, name: str, line: str) -> None:
        self._lines.put((name, line))

    def _tell(self, news: ProcessOutput | None) -> None:
        if not self._closed:
            self._news.put(news)
            self._alarm.send(b"!")

    def _read_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            known: set[ProcessOutput] = set()
            over = False
            while not over:
                for key, _ in selector.select():
                    if key.fileobj is not self._wake:
                        if key.data in known and not key.data.read():
                            selector.unregister(key.fileobj)
                        continue
                    self._wake.recv(1)
                    news = self._news.get()
                    if news is None:
                        over = True
                    elif news not in known:
                        known.add(news)
                        selector.register(news.reader, selectors.EVENT_READ, news)
                    else:
                        known.discard(news)
                        with contextlib.suppress(KeyError):  # it has ended
                            selector.unregister(news.reader)
                        news.shut()
            for output in known:
                output.shut()

    def _show_all(self) -> None:
        assert self._show is not None
        while (line := self._lines.get()) is not None:
            try:
                self._show(*line)
            except (OSError, ValueError):  # nobody looks any more
                return

    def close(self) -> None:
        """Prints the rest of the lines, and how many were left out; closing twice is fine."""
        if self._closed:
            return
        self._tell(None)
        self._closed = True
        self._threads[0].join()
        self._wake.close()
        self._alarm.close()
        for name, room in self._rooms.items():
            if room.left_bytes:
                self._lines.put((name, room.rest()))
        self._lines.put(None)
        for thread in self._threads[1:]:
            self.join(thread)


class ProcessOutput:
    """The pipe of a process: `writer` is its end."""

    def __init__(
        self,
        name: str,
        room: _Room | None,
        show: Show,
        tell: Callable[[ProcessOutput], None],
        reader: int | None = None,
    ) -> None:
        self.name = name
        self.reader, self.writer = os.pipe() if reader is None else (reader, -1)
        os.set_blocking(self.reader, False)
        self._show = show
        self._tell = tell
        self._lines = None if room is None else _Lines(room)
        self._tail = bytearray()
        self._lock = threading.Lock()
        self._handed = reader is not None
        self._released = False

    def hand_over(self) -> None:
        """Closes the end of the process, which has its own by now; calling it again is fine."""
        if not self._handed:
            self._handed = True
            os.close(self.writer)

    def read(self) -> bool:
        """Reads what there is; False: nothing will come any more."""
        with self._lock:
            for _ in range(0 if self._released else MAX_READS):
                try:
                    data = os.read(self.reader, READ_BYTES)
                except BlockingIOError:
                    return True
                self._tail += data
                del self._tail[:-TAIL_BYTES]
                if self._lines is not None:
                    for line in self._lines.feed(data):
                        self._show(self.name, line)
                if not data:
                    return False
            return not self._released

    def tail(self) -> str:
        """The end of what was written until now."""
        self.read()
        return self._tail.decode("utf-8", "replace")

    def mute(self) -> None:
        """Shows nothing that is written from now on."""
        self.read()
        with self._lock:
            if self._lines is not None:
                for line in self._lines.feed(b""):
                    self._show(self.name, line)
            self._lines = None

    def release(self) -> None:
        """Reads no more; `tail` still works. Calling it again is fine."""
        self.mute()
        self.hand_over()
        if not self._released:
            self._released = True
            self._tell(self)

    def shut(self) -> None:
        """Closes our end: for the thread that reads, which alone knows that it does not."""
        with self._lock:
            self._released = True
            os.close(self.reader)


class _Room:
    """Bounds how much is shown under a name."""

    def __init__(self) -> None:
        self._lines = self._bytes = 0
        self._left_lines = 0
        self.left_bytes = 0

    def has(self, size: int) -> bool:
        """Whether a line of this size is shown; if not, no later one is."""
        if self.left_bytes or self._lines == MAX_LINES or self._bytes + size > MAX_BYTES:
            return False
        self._lines += 1
        self._bytes += size
        return True

    def leave(self, data: bytes | bytearray) -> None:
        """Counts what is not shown."""
        self.left_bytes += len(data)
        self._left_lines += data.count(b"\n")

    def rest(self) -> str:
        """Says how much is not shown."""
        lines = "a line" if self._left_lines < 2 else f"{self._left_lines:,} more lines"
        return f"… {lines} not shown ({self.left_bytes:,} bytes)"


class _Lines:
    """Makes lines of an output."""

    def __init__(self, room: _Room) -> None:
        self._room = room
        self._begun = bytearray()
        self._cut = False
        """The line that has begun is too long, and shown already."""

    def feed(self, data: bytes) -> Iterator[str]:
        """Lines that are complete with more of the output; no more: the last one, too."""
        if self._room.left_bytes:
            self._room.leave(self._begun + data)
            self._begun.clear()
            return
        *whole, begun = data.split(b"\n")
        for one in whole:
            yield from self._line(self._begun + one)
            self._begun, self._cut = bytearray(), False
        self._begun += begun
        if self._begun and (not data or len(self._begun) > MAX_LINE_BYTES):
            yield from self._line(self._begun)
            self._begun, self._cut = bytearray(), True

    def _line(self, line: bytearray) -> Iterator[str]:
        """Prints a line as a terminal would: what follows the last carriage return."""
        if self._cut:
            return
        line = line.rstrip(b"\r")
        line = line[line.rfind(b"\r") + 1 :]
        end = "…" if len(line) > MAX_LINE_BYTES else ""
        line = line[:MAX_LINE_BYTES]
        if self._room.has(len(line) + 1):
            yield line.decode("utf-8", "replace") + end
        else:
            self._room.leave(line + b"\n")
