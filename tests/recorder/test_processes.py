"""Whether a process still runs."""

from __future__ import annotations

import os
import subprocess
import sys

from rpcinspect.recorder.processes import is_running


def test_who_runs_and_who_does_not() -> None:
    assert is_running(os.getpid())
    assert is_running(1)
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(child.pid), "it has ended, and nobody has waited for it"
    child.wait()
    assert not is_running(child.pid)
