"""Captures asked about the whole run, once for the tests that follow each other."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rpcinspect.opened import open_session
from rpcinspect.trace.answers import Trace, trace
from tests.truth import capture_of


@lru_cache(maxsize=64)
def traced(*paths: Path) -> Trace:
    """What can be asked; the capture is closed again, so that no bytes can be read. Don't change it."""
    with open_session(*map(str, paths)) as opened:
        ends = opened.ends
        return trace(opened.session, opened.messages(), ends=ends)


def workload_trace(name: str) -> Trace:
    """That of a recorded workload."""
    return traced(capture_of(name))
