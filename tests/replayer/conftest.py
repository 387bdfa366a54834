"""Live workers for the tests of this folder, and the check that none of them leaves anything behind."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.replayer.workers.workers import WorkerOptions, Workers
from tests.forks import HAS_TORCH, forks
from tests.looks import WITHOUT_CHILDREN, looks
from tests.replayer.left_behind import descendants, temporary_folders

JOBS = (
    *("basic_chain", "profiled_legacy", "param_detach", "dtype_zoo", "views_alias", "ctx_crowd"),
    *("rref_relay", "bwd_boom", "ps_race", "devmap_cpu", "reinit", "draws", "training"),
)
"""The modules of the bundled captures' jobs."""


@pytest.fixture(scope="session")
def workers(repo: Path) -> Iterator[Workers]:
    """One parent process for all live workers of a test run; importing torch takes seconds."""
    pytest.importorskip("torch")
    forks()  # these stay
    forks("commands")
    options = WorkerOptions(path=(str(repo / "captures"),), imports=JOBS, rpc_timeout_s=10)
    before = descendants(os.getpid())
    with Workers(options) as found:
        yield found
    assert descendants(os.getpid()) <= before


@pytest.fixture
def group(workers: Workers, nothing_left: None) -> Iterator[LiveGroup]:
    """A fresh store; whatever the test starts around it ends with the test."""
    with LiveGroup(workers) as found:
        yield found


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails a test after which a process, an open file or a temporary folder is left."""
    kinds = [] if WITHOUT_CHILDREN else ["commands", *(["torch"] if HAS_TORCH else [])]
    parents = [os.getpid(), *(forks(kind).pid for kind in kinds)]

    def there() -> tuple[set[int], int, set[str]]:
        files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        folders = (temporary_folders(tempfile.gettempdir(), pid) for pid in parents)
        return descendants(os.getpid()), files, set().union(*folders)

    processes, files, folders = there()
    yield
    if looks.skipped is not None:  # somewhere in the middle
        return
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        now = there()
        if now[0] <= processes and now[1] <= files and now[2] <= folders:
            return
        time.sleep(0.02)
    assert now[0] <= processes, "processes are left"
    assert now[1] <= files, "files are left open"
    assert now[2] <= folders, "folders are left"
