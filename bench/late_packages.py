"""Runs `python -m MODULE …` with more packages behind those that Python has: `late_packages.py MODULE …`.

In: a folder in RPCINSPECT_LATE_PACKAGES, and the checkout that this file lies in. PYTHONPATH would put the
folder before the packages that are there, and those must win.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path


def extend_path() -> None:
    """The checkout first, the folder last."""
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    late = os.environ.get("RPCINSPECT_LATE_PACKAGES")
    if late:
        sys.path.append(late)


if __name__ == "__main__":
    extend_path()
    module = sys.argv[1]
    del sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
