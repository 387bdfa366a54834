"""The process that writes packets into a pcap. It has a session of its own, so that no key of the terminal
reaches it, and ends when our process does, however that ends.

In: a ring and an open file. Out: the file, which after every write ends with a whole record; and in the end
a report. Nothing waits in its memory: what the kernel handed over is written at once, so that whoever kills
it loses what is in the ring and at most one record. A write that fails (a full disk) ends the recording, with
one line on standard error at that moment, and the job goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from pathlib import Path
from typing import NoReturn

from rpcinspect.capture.pcap import pcap_header
from rpcinspect.files.output import open_growing
from rpcinspect.recorder.launcher import fork
from rpcinspect.recorder.packet_socket import RETIRE_MS, Ring
from rpcinspect.recorder.record import Recorded

WRITES = 512
"""Packets of one system call; twice as many pieces are within the limit of every system."""
IDLE_MS = 4 * RETIRE_MS
"""Whoever waited this long behind the last block has seen the last packet."""


class Sniffer:
    """The process, as ours sees it."""

    def __init__(self, ring: Ring, path: Path) -> None:
        """Starts it; the ring is the new process's alone afterwards. `OutputError`: there can't be such a
        file."""
        file = open_growing(path)
        self._path = path
        report_read, report = os.pipe()
        stop, stop_write = os.pipe()
        self._pid = fork()
        if self._pid == 0:
            os.close(stop_write)
            os.close(report_read)
            _serve(ring, path, file, stop, report)
        for descriptor in (file, stop, report):
            os.close(descriptor)
        ring.close()
        self._report, self._stop = os.fdopen(report_read, "rb"), os.fdopen(stop_write, "wb")
        self._ended = False

    def finish(self) -> Recorded:
        """Has it write what the kernel holds, and waits for its end."""
        self._stop.close()
        report = self._report.read()
        self.close()
        if report:
            return Recorded(file=self._path, **json.loads(report))
        size, why = 0, "its process was killed"
        try:
            size = self._path.stat().st_size
        except OSError:
            why += ", and its file removed"
        return Recorded(file=self._path, bytes=size, packets=0, ended_early=why)

    def close(self) -> None:
        """Ends it, if it hasn't; what the kernel holds is still written."""
        self._stop.close()
        if not self._ended:
            os.waitpid(self._pid, 0)
            self._ended = True
        self._report.close()


def _serve(ring: Ring, path: Path, file: int, stop: int, report: int) -> NoReturn:
    """The life of the process. Never returns, whatever happens."""
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):  # who reads what the command writes must see its end
            os.dup2(nowhere, descriptor)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)  # it ends when our process says so, or is gone
        writer = _Writer(ring, file)
        try:
            writer.run(stop)
        except Exception as error:
            writer.failed = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            writer.cut()
            line = f"rpcinspect: {path}: {writer.failed}: the recording ends here, the job goes on\n"
            with contextlib.suppress(OSError):
                os.write(2, line.encode(errors="backslashreplace"))
        os.write(report, json.dumps(writer.report()).encode())
    finally:
        os._exit(0)


class _Writer:
    def __init__(self, ring: Ring, file: int) -> None:
        self._ring = ring
        self._file = file
        self._size = 0
        self._packets = 0
        self.failed: str | None = None

    def run(self, stop: int) -> None:
        """Until `stop` closes, and then what is left in the ring."""
        self._write([pcap_header(self._ring.link_type)])
        poller = select.poll()
        poller.register(self._ring.fileno(), select.POLLIN)
        poller.register(stop, select.POLLIN)
        taken = False
        while True:
            ready = dict(poller.poll(0 if taken else None))
            if stop in ready:
                break
            taken = self._take()
            if ready.get(self._ring.fileno(), 0) & select.POLLERR:
                self._ring.check()
        self._ring.refuse_more()
        poller.unregister(stop)
        for _ in range(2 * self._ring.blocks):  # others may have filled it again meanwhile
            if not self._take() and not poller.poll(IDLE_MS):
                break

    def _take(self) -> bool:
        """Writes the next block, if there is one."""
        packets = self._ring.take()
        for start in range(0, len(packets), WRITES):
            some = packets[start : start + WRITES]
            self._write([piece for packet in some for piece in packet])
            self._packets += len(some)
        if packets:
            self._ring.release()
        return bool(packets)

    def _write(self, pieces: list[bytes | memoryview]) -> None:
        length = sum(map(len, pieces))
        written = os.writev(self._file, pieces)
        if written < length:  # the rest of it fails, and says why
            rest = b"".join(pieces)[written:]
            while rest:
                rest = rest[os.write(self._file, rest) :]
        self._size += length

    def cut(self) -> None:
        """The file ends with its last whole record."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self._size)

    def report(self) -> dict[str, int | str | None]:
        """Fields of a `Recorded`."""
        counted = {"packets": self._packets, "bytes": self._size, "dropped": self._ring.dropped()}
        return {**counted, "ended_early": self.failed}
