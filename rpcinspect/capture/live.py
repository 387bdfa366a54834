"""A capture that is being made: dumpcap, Wireshark's capturing program, writes pcapng into a pipe.

In: the name of an interface. Out: a `Source`, read as standard input is: what dumpcap has written is there at
once. dumpcap has the rights to capture, where the system gives it any, and nothing here runs with them.
"""

from __future__ import annotations

import re

from rpcinspect.capture.child import Child
from rpcinspect.capture.source import SpooledSource, Stream, spooled
from rpcinspect.capture.tshark import INSTALL, find_program
from rpcinspect.capture.unpack import Report
from rpcinspect.errors import CaptureError

KERNEL_MB = 64
"""Room for packets while we are busy; what finds none is lost."""

NO_RIGHT = (
    "run this as root, or let your user capture (Debian, Ubuntu: sudo dpkg-reconfigure wireshark-common, "
    "then sudo usermod -aG wireshark YOU and log in again)"
)


_DROPPED = re.compile(r"received/dropped on interface .*: \d+/(\d+) ")


class _Capture(Stream):
    """What dumpcap writes."""

    def __init__(self, interface: str, child: Child, report: Report) -> None:
        super().__init__(interface, child.output(), None, live=True)
        self._child = child
        self._report = report
        self._read = 0
        self._over = False

    def read(self, size: int) -> bytes:
        data = super().read(size)
        self._read += len(data)
        if not data and self._read and not self._over:
            self._over = True
            self._look_back()
        return data

    def end(self) -> bool:
        self._child.interrupt()
        return super().end()

    def close(self) -> None:
        super().close()
        self._child.close()

    def _look_back(self) -> None:
        """Reports what was lost, and an end that nobody asked for."""
        code = self._child.result()
        lines = self._child.complaint()
        dropped = sum(int(count) for line in lines for count in _DROPPED.findall(line))
        if dropped:
            self._report(f"{dropped:,} packets were lost while capturing: they came too fast")
        if code:
            self._report(f"the capture ended: {_told(lines) or f'dumpcap, code {code}'}")


def open_live(interface: str, capture_filter: str | None, report: Report) -> SpooledSource:
    """Starts to capture; raises `CaptureError` where dumpcap is not there or not allowed to."""
    program = find_program("dumpcap")
    if program is None:
        raise CaptureError(f"{interface}: to capture live, tshark's dumpcap is needed; {INSTALL}")
    command = [program, "-q", "-i", interface, "-B", str(KERNEL_MB), "-n", "-w", "-"]
    if capture_filter is not None:
        command += ["-f", capture_filter]
    child = Child(command)
    stream = _Capture(interface, child, report)
    try:
        source = spooled(interface, stream, report)
    except BaseException:
        stream.close()
        raise
    try:
        if not source.window(0, 4):
            told = f"dumpcap ended with code {child.result()}"
            raise CaptureError(f"{interface}: can't be captured: {_told(child.complaint()) or told}")
    except BaseException:
        source.close()
        raise
    return source


def _told(lines: list[str]) -> str:
    """What dumpcap said was wrong, in one line, and what to do."""
    starts = [at for at, line in enumerate(lines) if line.startswith("dumpcap: ")]
    if not starts:
        return ""
    told = lines[starts[0]].removeprefix("dumpcap: ")
    if "permission" in " ".join(lines[starts[0] :]):
        return f"{told.rstrip('.')}: {NO_RIGHT}"
    if "Invalid capture filter" in told:
        return " ".join(lines[starts[0] : starts[0] + 2]).removeprefix("dumpcap: ")
    return told
