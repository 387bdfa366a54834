"""What the kernel counts of processes that it kills for lack of memory: made to happen, where root may."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rpcinspect.recorder.processes import GROUPS, oom_kills
from tests.recorder.recording import environment

ASK = "from rpcinspect.recorder.processes import oom_kills; print(oom_kills())"
GREEDY = "data = []\nwhile True: data.append(b'x' * (1 << 20))"


def test_the_count_does_not_shrink() -> None:
    first, second = oom_kills(), oom_kills()
    assert (first is None) == (second is None)
    assert first is None or second is None or 0 <= first <= second


@pytest.fixture
def group() -> object:
    """A group of version 1 or 2 that may have 64 MiB."""
    if (GROUPS / "memory").is_dir():
        made, limit = GROUPS / "memory" / f"rpcinspect-{os.getpid()}", "memory.limit_in_bytes"
    else:
        made, limit = GROUPS / f"rpcinspect-{os.getpid()}", "memory.max"
    try:
        made.mkdir()
        (made / limit).write_text(str(64 << 20))
    except OSError as error:
        if made.is_dir():
            made.rmdir()
        pytest.skip(f"no memory group of our own here: {error}")
    yield made
    for _ in range(100):  # its processes are gone, which the group may hear later
        try:
            made.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            break


@pytest.mark.rooted
def test_a_kill_counts_where_it_happened(group: Path) -> None:
    before = oom_kills()
    script = f'echo $$ >{group}/cgroup.procs; {sys.executable} -c "$1"; {sys.executable} -c "$2"'
    run = ["sh", "-c", script, "sh", GREEDY, ASK]
    done = subprocess.run(run, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n", done.stderr
    assert oom_kills() == before, "another group than ours, and not above it"
