"""What is said of a process that ended early."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from rpcinspect.replayer.workers.process_exit import EarlyExit, Exit, count_oom_kills, quoted, signal_name

GONE = Exit(None, parent_code=-9)


def ended(code: int | None, peak: int | None = None, **more: object) -> EarlyExit:
    exit = GONE if code is None else Exit(code, peak)
    return EarlyExit(who="the live worker w1", worker="w1", exit=exit, **more)  # type: ignore[arg-type]


KILLED = "was ended by SIGKILL; this replay did not cause that"
BAD_ALLOC = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
BOUND = "it ran out of memory; its limit is 1 GB (--memory)"


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (ended(3), "ended with code 3"),
        (ended(-11, last_message=7), "was ended by SIGSEGV; the last message sent to it is #7"),
        (ended(None), "is gone: its parent process was ended by SIGKILL"),
        (ended(-9, 21_300_000_000), f"{KILLED}; it had at most 21.3 GB in memory"),
        (
            ended(-9, oom_kills=1),
            f"{KILLED}, and the kernel has ended a process for lack of memory once meanwhile",
        ),
        (ended(-6, output=BAD_ALLOC, memory_bytes=10**9), f"was ended by SIGABRT; {BOUND}"),
        (ended(-6, output=BAD_ALLOC), "was ended by SIGABRT"),
        (ended(-6, output="assertion failed", memory_bytes=10**9), "was ended by SIGABRT"),
    ],
)
def test_what_is_said(one: EarlyExit, text: str) -> None:
    assert one.text == f"the live worker w1 {text}"


def test_signals_have_their_names() -> None:
    assert signal_name(signal.SIGBUS) == "SIGBUS"
    assert signal_name(signal.SIGRTMIN + 3) == f"signal {signal.SIGRTMIN + 3}"
    assert (Exit(-15).signal, Exit(15).signal, Exit(None).signal) == ("SIGTERM", None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/vmstat is Linux's")
def test_processes_that_the_kernel_has_ended() -> None:
    before = Path("/proc/vmstat").read_text(encoding="ascii")
    found = count_oom_kills()
    (line,) = (line for line in before.splitlines() if line.startswith("oom_kill "))
    assert found >= int(line.split()[1])


def test_what_is_quoted_of_an_output() -> None:
    """The end, where an error stands; of a crash the place where it happened."""
    assert quoted("\n \n") == ""
    lines = [f"line {number}" for number in range(20)]
    assert quoted("\n".join(lines)) == ":\n" + "\n".join(lines[-10:])
    crash = ["Fatal Python error: Aborted", '  File "job.py", line 3 in hang', *lines]
    assert quoted("\n".join([*lines, *crash])) == ":\n" + "\n".join(crash[:10])
