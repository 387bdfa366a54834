"""What runs in the live workers' processes, part by part, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rpcinspect.replayer.workers import workers
from tests import forks

FOLDER = Path(workers.__file__).parent


def run(code: str, *arguments: str) -> object:
    """What a program prints as JSON; it finds `worker_main` as `w`."""
    program = f"import sys, json; sys.path.insert(0, {str(FOLDER)!r}); import worker_main as w\n{code}"
    done = forks.run([sys.executable, "-B", "-c", program, *arguments], timeout=60, check=True)
    return json.loads(done.stdout)


def test_children_of_a_process() -> None:
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        pytest.skip("this kernel does not list children")
    found = run(
        "import subprocess\nc = subprocess.Popen(['sleep', '100'])\n"
        "seen = w.own_children()\nc.kill()\nc.wait()\n"
        "print(json.dumps([seen == [c.pid], w.own_children()]))"
    )
    assert found == [True, []]


def test_the_module_itself_needs_no_torch() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import worker_main; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
