"""Bytes on disk or on a pipe → blocks of packets, or of records of a log. The only stage that opens files."""

from __future__ import annotations

from rpcinspect.capture.block import LogBlock, PacketBlock, TcpBlock
from rpcinspect.capture.reader import (
    DEFAULT_READING,
    CaptureInput,
    CaptureReader,
    Followed,
    Live,
    PysharkCapture,
    Reading,
)

__all__ = [
    "DEFAULT_READING",
    "CaptureInput",
    "CaptureReader",
    "Followed",
    "Live",
    "LogBlock",
    "PacketBlock",
    "PysharkCapture",
    "Reading",
    "TcpBlock",
]
