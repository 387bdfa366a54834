"""A capture that is being made: packets of an interface as a pipe, which is read as standard input is.

In: the name of an interface. Out: a `Source`: what was captured is there at once. Where the user may open
packet sockets (root, CAP_NET_RAW), the same `Sniffer` captures as for `rpcinspect record`; dumpcap does for
users to whom the system gives the right by it, and where a filter in libpcap's syntax is to be compiled.
Nothing here runs with dumpcap's rights.
"""

from __future__ import annotations

import os
import re
from typing import Protocol

from rpcinspect.capture.child import ChildTool
from rpcinspect.capture.packet_socket import Ring, open_socket
from rpcinspect.capture.sniffer import Sniffed, Sniffer
from rpcinspect.capture.source import InputStream, SpooledSource, spooled
from rpcinspect.capture.tshark import INSTALL, find_program
from rpcinspect.capture.unpack import ReportReason
from rpcinspect.errors import DOCTOR, CaptureError

KERNEL_MB = 64
"""Room for packets while dumpcap is busy; what finds none is lost."""

NO_RIGHT = (
    "run this as root, or let your user capture (Debian, Ubuntu: sudo dpkg-reconfigure wireshark-common, "
    f"then sudo usermod -aG wireshark YOU and log in again); {DOCTOR}"
)

DRAIN_S = 60.0
"""How long a capturer that was stopped may take to write what it holds, while we decode that."""

_DROPPED = re.compile(r"received/dropped on interface .*: \d+/(\d+) ")


class Capturer(Protocol):
    """A process that captures."""

    def stop(self) -> None:
        """Makes the capturer write what it holds, and end. Signal handlers may call this."""

    def finish(self) -> Sniffed:
        """Returns lost packets and the reason of an early end. Call this after the end of the output."""

    def close(self) -> None:
        """Ends the capturer; closing twice is fine."""


class Dumpcap:
    """Wireshark's capturing program, which writes pcapng."""

    def __init__(self, interface: str, capture_filter: str | None) -> None:
        program = find_program("dumpcap")
        if program is None:
            needed = "as this user" if capture_filter is None else "with a filter"
            raise CaptureError(f"{interface}: to capture {needed}, tshark's dumpcap is needed; {INSTALL}")
        command = [program, "-q", "-i", interface, "-B", str(KERNEL_MB), "-n", "-w", "-"]
        self._child = ChildTool(command if capture_filter is None else [*command, "-f", capture_filter])
        self.output = self._child.output()
        self.stop, self.close = self._child.interrupt, self._child.close

    def finish(self) -> Sniffed:
        code, lines = self._child.result(), self._child.complaint()
        dropped = sum(int(count) for line in lines for count in _DROPPED.findall(line))
        told = _told(lines) or f"dumpcap, code {code}"
        return Sniffed(dropped=dropped, ended_early=told if code else None)


class _Capture(InputStream):
    """The stream of a capturer; its end reports lost packets and an end that nobody asked for."""

    grace_s = DRAIN_S

    def __init__(self, interface: str, output: int, capturer: Capturer, report: ReportReason) -> None:
        super().__init__(interface, output, None, live=True)
        self._capturer = capturer
        self._report = report
        self._over = False

    def read(self, size: int) -> bytes:
        data = super().read(size)
        if not data and self._taken and not self._over:
            self._over = True
            self._look_back()
        return data

    def end(self) -> bool:
        self._capturer.stop()
        return super().end()

    def close(self) -> None:
        super().close()
        self._capturer.close()

    def _look_back(self) -> None:
        """Reports lost packets, and an end that nobody asked for."""
        sniffed = self._capturer.finish()
        if sniffed.dropped:
            self._report(f"{sniffed.dropped:,} packets were lost while capturing: they came too fast")
        if sniffed.ended_early is not None:
            self._report(f"the capture ended: {sniffed.ended_early}")


def open_live(interface: str, capture_filter: str | None, report: ReportReason) -> SpooledSource:
    """Starts to capture; raises `CaptureError` where that can't be, or is not allowed."""
    output, capturer = _begin(interface, capture_filter)
    stream = _Capture(interface, output, capturer, report)
    try:
        source = spooled(interface, stream, report)
    except BaseException:
        stream.close()
        raise
    try:
        if not source.window(0, 4):
            told = capturer.finish().ended_early or "nothing came"
            raise CaptureError(f"{interface}: can't be captured: {told}")
    except BaseException:
        source.close()
        raise
    return source


def _begin(interface: str, capture_filter: str | None) -> tuple[int, Capturer]:
    """Returns the descriptor to read the capture from, and the capturer."""
    if capture_filter is None:
        try:
            ring = Ring(open_socket(interface), tcp_only=False)
        except OSError:
            pass  # no right, or no Linux
        else:
            output, its_end = os.pipe()
            return output, Sniffer(ring, its_end, not_for_it=[output])
    dumpcap = Dumpcap(interface, capture_filter)
    return dumpcap.output, dumpcap


def _told(lines: list[str]) -> str:
    """Returns dumpcap's error message in one line, with what to do about missing rights."""
    starts = [at for at, line in enumerate(lines) if line.startswith("dumpcap: ")]
    if not starts:
        return ""
    told = lines[starts[0]].removeprefix("dumpcap: ")
    if "permission" in " ".join(lines[starts[0] :]):
        return f"{told.rstrip('.')}: {NO_RIGHT}"
    if "Invalid capture filter" in told:
        return " ".join(lines[starts[0] : starts[0] + 2]).removeprefix("dumpcap: ")
    return told
