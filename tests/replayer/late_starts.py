"""Captures that began late: the messages of a bundled one from some moment on, and all names."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.export.pcap.writer import write_session
from rpcinspect.run.run import RunModel
from tests.truth import capture_of


def late_start(folder: Path, name: str, first: int) -> Path:
    """Without the messages before `first`."""
    path = folder / f"{name}-{first}.pcap"
    with RunModel.open([str(capture_of(name))]) as opened, path.open("wb") as output:
        messages = opened.messages
        write_session(output, opened.session, messages, opened.read, range(first, len(messages)))
    return path
