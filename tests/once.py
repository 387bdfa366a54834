"""What takes long to make and is the same for all tests of a run: made by the process that asks first.

`--dist worksteal` gives tests of one module to several processes, each of which makes its own fixtures.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Returns the folder of this name, which all processes of a run share; `make` fills it, once."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = shared / name
        if not folder.exists():
            unfinished = Path(tempfile.mkdtemp(dir=shared))
            make(unfinished)
            unfinished.rename(folder)
    return folder
