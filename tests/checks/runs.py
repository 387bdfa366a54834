"""Captures asked about the whole run, once for the tests that follow each other."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rpcinspect.run.run import RunModel, open_run
from tests.truth import capture_of


@lru_cache(maxsize=64)
def traced(*paths: Path) -> RunModel:
    """What can be asked; the capture is closed again, so that no bytes can be read. Don't change it."""
    with open_run(*map(str, paths)) as opened:
        ends = opened.ends
        return RunModel(opened.session, opened.messages, ends=ends)


def workload_trace(name: str) -> RunModel:
    """That of a recorded workload."""
    return traced(capture_of(name))
