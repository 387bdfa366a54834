"""Bytes on disk or on a pipe → blocks of packets. The only stage that opens files."""

from __future__ import annotations

from rpcinspect.capture.block import PacketBlock
from rpcinspect.capture.reader import CaptureReader, open_capture

__all__ = ["CaptureReader", "PacketBlock", "open_capture"]
