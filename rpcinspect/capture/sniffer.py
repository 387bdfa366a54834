"""The process that writes the packets of an interface as a pcap. It has a session of its own, so that no key
of the terminal reaches it, and ends when our process does, however that ends.

In: a ring and an open file or pipe. Out: a pcap there, which after every write ends with a whole record; and
in the end a `Sniffed`. Nothing waits in its memory: what the kernel handed over is written at once, so that
whoever kills it loses what is in the ring and at most one record. A write that fails (a full disk) ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

from msgspec import Struct

from rpcinspect.capture.packet_socket import RETIRE_MS, Ring
from rpcinspect.capture.pcap import pcap_header

WRITES = 512
"""Packets of one system call; twice as many pieces are within the limit of every system."""
IDLE_MS = 4 * RETIRE_MS
"""Whoever waited this long behind the last block has seen the last packet."""


class Sniffed(Struct, frozen=True, kw_only=True):
    """How many packets and bytes were captured on an interface, how many were lost, and why it ended."""

    packets: int = 0
    bytes: int | None = None
    """Of the file; None where the process was killed before it could say."""
    dropped: int = 0
    """Packets that were lost: they came too fast."""
    ended_early: str | None = None
    """Why the sniffer ended before `stop`."""


def fork() -> int:
    """A new process, which needs no other thread than the one that calls; what `os.fork` gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Sniffer:
    """The process, as ours sees it."""

    def __init__(
        self,
        ring: Ring,
        output: int,
        *,
        complain: Callable[[str], str] = lambda reason: "",
        not_for_it: Sequence[int] = (),
    ) -> None:
        """Starts it; ring and `output` are the new process's alone afterwards.

        `complain`: makes a text of the reason why it can't go on, for standard error at that moment;
        `not_for_it`: descriptors of ours that it must not hold, such as the other end of a pipe.
        """
        report_read, report = os.pipe()
        stop, stop_write = os.pipe()
        self._pid = fork()
        if self._pid == 0:
            for descriptor in (stop_write, report_read, *not_for_it):
                os.close(descriptor)
            _serve(ring, output, stop, report, complain)
        for descriptor in (output, stop, report):
            os.close(descriptor)
        ring.close()
        self._report, self._stop = os.fdopen(report_read, "rb"), os.fdopen(stop_write, "wb")
        self._ended = False

    def stop(self) -> None:
        """Makes the process write what the kernel holds, and end. Signal handlers may call this."""
        self._stop.close()

    def finish(self) -> Sniffed:
        """Makes the process write what the kernel holds, waits for the end and returns its report."""
        self.stop()
        report = self._report.read()
        self.close()
        return Sniffed(**json.loads(report)) if report else Sniffed(ended_early="its process was killed")

    def close(self) -> None:
        """Ends the process if it still runs; what the kernel holds is still written."""
        self.stop()
        if not self._ended:
            os.waitpid(self._pid, 0)
            self._ended = True
        self._report.close()


def _serve(ring: Ring, output: int, stop: int, report: int, complain: Callable[[str], str]) -> NoReturn:
    """The life of the process. Never returns, whatever happens."""
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):  # who reads what our process or the command writes must see its end
            os.dup2(nowhere, descriptor)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)  # it ends when our process says so, or is gone
        writer = _PcapWriter(ring, output)
        try:
            writer.run(stop)
        except Exception as error:
            writer.failed = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            writer.cut()
            with contextlib.suppress(OSError):
                os.write(2, complain(writer.failed).encode(errors="backslashreplace"))
        os.write(report, json.dumps(writer.report()).encode())
    finally:
        os._exit(0)


class _PcapWriter:
    def __init__(self, ring: Ring, file: int) -> None:
        self._ring = ring
        self._file = file
        self._size = 0
        self._packets = 0
        self.failed: str | None = None

    def run(self, stop: int) -> None:
        """Writes packets until `stop` closes, and then what is left in the ring."""
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
        if written < length:  # a pipe takes the rest; of a file it fails, and says why
            rest = b"".join(pieces)[written:]
            while rest:
                rest = rest[os.write(self._file, rest) :]
        self._size += length

    def cut(self) -> None:
        """Cuts the file behind its last whole record."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self._size)

    def report(self) -> dict[str, int | str | None]:
        """Fields of a `Sniffed`."""
        counted = {"packets": self._packets, "bytes": self._size, "dropped": self._ring.dropped()}
        return {**counted, "ended_early": self.failed}
