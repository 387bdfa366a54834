"""What one input may cost: processor time and memory of this process while something runs.

    with bounded(seconds=2, mib=200):
        read(data)

Too much of either is a `TooMuch`: time stops what runs where it is, so that the traceback tells what took it;
memory is looked at behind it, by the peak that the kernel has counted since the beginning.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class TooMuch(Exception):
    """An input took more than its share."""


@contextmanager
def bounded(seconds: float, mib: int) -> Iterator[None]:
    """See the module's text; only in a main thread."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise TooMuch(f"more than {seconds} s")

    gc.disable()  # else what others left behind counts as ours
    before = _reset_peak()
    old = signal.signal(signal.SIGVTALRM, stop)
    begin = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
        gc.enable()
    took = time.process_time() - begin
    if took > seconds:  # in one call of C, which no signal stops
        raise TooMuch(f"{took:.1f} s, more than {seconds}")
    grown = (_peak() - before) >> 10
    if grown > mib:
        raise TooMuch(f"{grown:,} MiB more than before, more than {mib}")


def _peak() -> int:
    """KiB; 0 where there is no /proc."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _reset_peak() -> int:
    """Makes the peak what is held now; gives it in KiB."""
    try:
        fd = os.open(CLEAR, os.O_WRONLY)
    except OSError:
        return _peak()
    try:
        os.write(fd, b"5")
    except OSError:
        pass
    finally:
        os.close(fd)
    return _peak()
