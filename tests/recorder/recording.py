"""Runs `rpcinspect record` as a user does: a process of its own, real workers, real sockets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.forks import python

ROOT = Path(__file__).resolve().parent.parent.parent
CAPTURES = ROOT / "captures"
SECONDS = 120


@dataclass(frozen=True)
class Ran:
    """What a recorded command came to."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> list[str]:
        """The lines of ours."""
        return [
            line.removeprefix("rpcinspect: ")
            for line in self.err.splitlines()
            if line.startswith("rpcinspect: ")
        ]


def environment(**more: str) -> dict[str, str]:
    """This process's, in which our program is found."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("RPCINSPECT_RECORD", "PYTHONPATH")
    }
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **more}


def start(
    *arguments: object, folder: Path, env: dict[str, str] | None = None, before: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """`rpcinspect record ARGUMENTS` in a session of its own."""
    return python(
        *("-m", "rpcinspect", "record", *arguments),
        before=before,
        cwd=folder,
        env=env or environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], text: str = "", seconds: float = SECONDS) -> Ran:
    """Waits for its end; whatever it started is ended with it, if it takes too long."""
    try:
        out, err = process.communicate(text, timeout=seconds)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return Ran(process.returncode, out, err)


def record(
    *arguments: object,
    folder: Path,
    text: str = "",
    env: dict[str, str] | None = None,
    before: tuple[str, ...] = (),
) -> Ran:
    """One run to its end."""
    return finish(start(*arguments, folder=folder, env=env, before=before), text)


@cache
def may_have_own_network() -> bool:
    """Whether this system gives us a network namespace and the right to capture in it."""
    code = (
        "from rpcinspect.recorder.namespace import enter_own_network\n"
        "from rpcinspect.capture.packet_socket import open_socket\n"
        "enter_own_network(); open_socket('lo')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, env=environment(), timeout=60
    )
    return done.returncode == 0


def need_own_network() -> None:
    """Skips a test that can't capture here."""
    if not may_have_own_network():
        pytest.skip("no network namespace of our own here")


def children(pid: int) -> list[int]:
    """Processes that a process started, oldest first."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sorted(map(int, found))


def wait_for(there: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Until something holds that may take a while."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)
