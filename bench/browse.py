"""`make bench-browse`: how soon `rpcinspect browse` shows something, how fast it answers keys, its memory.

    python bench/browse.py CAPTURE…           in a terminal of its own, 80×24
    python bench/browse.py --keys 500 CAPTURE

In: captures. Out: for each a line: seconds to the first screen with messages; milliseconds from a key to the
first output after it (median and 99th of a hundred), at once, while a large capture is being read, and when
all was read; seconds until then, and memory at the peak. The program is the real one, in a pseudo-terminal.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import random
import select
import signal
import statistics
import struct
import sys
import termios
import time
from pathlib import Path

ROWS, COLUMNS = 24, 80
ARROW = "→".encode()
QUIET_S = 0.03
KEYS = (b"j", b"j", b"j", b"k", b"\x1b[6~", b"\x1b[5~", b"G", b"g", b"\x1b[6~", b"j")
MOST_S = 1800.0
IDLE_S = 1.0


class Terminal:
    """A terminal with the program in it."""

    def __init__(self, capture: str, *options: str) -> None:
        self.begin = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.environ |= {"TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": "", "LINES": ""}
            os.environ.pop("COLUMNS"), os.environ.pop("LINES")
            os.execv(sys.executable, [sys.executable, "-m", "rpcinspect", "browse", *options, capture])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.seen = b""

    def read(self, timeout_s: float) -> bytes:
        """Returns what came; empty after the time."""
        if not select.select([self.fd], [], [], timeout_s)[0]:
            return b""
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return b""
        self.seen = (self.seen + data)[-20_000:]
        return data

    def wait_for(self, text: bytes, most_s: float) -> float:
        """Returns when a text came, in seconds from the start."""
        end = time.perf_counter() + most_s
        while text not in self.seen:
            if time.perf_counter() > end:
                raise SystemExit(f"bench: {text!r} did not come")
            self.read(0.05)
        return time.perf_counter() - self.begin

    def settle(self) -> None:
        """Waits until nothing is written for a moment."""
        end = time.perf_counter() + 2
        while self.read(QUIET_S) and time.perf_counter() < end:
            pass

    def key(self, key: bytes) -> float:
        """Presses a key; returns the seconds until something is written."""
        self.settle()
        begin = time.perf_counter()
        os.write(self.fd, key)
        self.read(2.0)
        return time.perf_counter() - begin

    def is_idle(self) -> bool:
        """Whether the program does next to nothing for a second: all was read."""
        before, end = self._cpu_s(), time.perf_counter() + IDLE_S
        while time.perf_counter() < end:
            self.read(0.1)
        return self._cpu_s() - before < IDLE_S / 10

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def status(self, name: str) -> int:
        """Returns a number of /proc's status in kB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
        return 0

    def close(self) -> None:
        """Ends the program."""
        os.write(self.fd, b"Q")
        end = time.perf_counter() + 20
        while time.perf_counter() < end:
            self.read(0.05)
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                os.close(self.fd)
                return
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def measure(capture: str, keys: int) -> str:
    """Returns the line of a capture."""
    terminal = Terminal(capture)
    try:
        first = terminal.wait_for(ARROW, 60)
        chosen = random.Random(1).choices(KEYS, k=keys)
        at_first = [terminal.key(key) for key in chosen]
        while not terminal.is_idle():
            if time.perf_counter() - terminal.begin > MOST_S:
                raise SystemExit("bench: the reading does not end")
        done = time.perf_counter() - terminal.begin - IDLE_S
        after = [terminal.key(key) for key in chosen]
        memory = terminal.status("VmHWM") / 1024
    finally:
        terminal.close()
    return "  ".join(
        (
            f"{Path(capture).name:<24}",
            f"first {first:6.2f} s",
            f"read {done:7.1f} s",
            f"keys at first {percentiles(at_first)}",
            f"afterwards {percentiles(after)}",
            f"{memory:6.0f} MB",
        )
    )


def percentiles(seconds: list[float]) -> str:
    """Returns the median and the 99th percentile in milliseconds."""
    if len(seconds) < 2:
        return "     -      "
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"{1e3 * cuts[49]:4.0f}/{1e3 * cuts[98]:4.0f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captures", nargs="+", metavar="CAPTURE")
    parser.add_argument("--keys", type=int, default=100)
    asked = parser.parse_args()
    for capture in asked.captures:
        print(measure(capture, asked.keys), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
