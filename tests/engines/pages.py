"""Programs of docs/fleet.md, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.places import CAPTURES

ROOT = CAPTURES.parent
PAGE = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
ANSWER = re.search(r"all of them answer:\n\n```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TIMEOUT_S = 300
"""Spark takes 40 s on two cores that have nothing else to do."""


def program(engine: str) -> str:
    """The program below the heading of an engine."""
    found = re.search(rf"^### {engine}\n.*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def answer() -> str:
    """What each of them prints."""
    assert ANSWER is not None
    return ANSWER[1]


def printed(package: str, code: str) -> str:
    """What a program prints; skips where the engine is missing."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.fspath(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PATHS = """
paths = ["captures/basic_chain.pcap", "README.md", "captures/basic_chain.pcap"]
"""
"""Captures of which one is none."""
