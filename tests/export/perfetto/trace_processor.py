"""Perfetto's own reader of traces, where it is there: `trace_processor_shell`, or what TRACE_PROCESSOR names.

It is no Python package: https://get.perfetto.dev/trace_processor.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = (
    os.environ.get("TRACE_PROCESSOR")
    or shutil.which("trace_processor_shell")
    or shutil.which("trace_processor")
)

needs_trace_processor = pytest.mark.skipif(
    PROGRAM is None, reason="Perfetto's trace_processor_shell is not installed, nor named by TRACE_PROCESSOR"
)


def query(trace: Path, sql: str) -> list[list[str]]:
    """The rows of an answer."""
    assert PROGRAM is not None
    question = trace.with_suffix(".sql")
    question.write_text(sql)
    done = subprocess.run(
        [PROGRAM, "-q", str(question), str(trace)],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    _, *rows = csv.reader(io.StringIO(done.stdout))
    return [row for row in rows if row]
