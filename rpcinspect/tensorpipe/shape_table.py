"""Descriptors, parsed once for all that have the same bytes: a training loop has a handful of different ones.

In: the body of a descriptor frame. Out: a `Shape`. Bounded by count and bytes.
"""

from __future__ import annotations

import struct

from msgspec import Struct

from rpcinspect.errors import LimitExceeded
from rpcinspect.limits import Limits
from rpcinspect.tensorpipe.control import read_descriptor
from rpcinspect.tensorpipe.control_types import ControlLayout, TpDescriptor
from rpcinspect.tensorpipe.nop import LAYER
from rpcinspect.tensorpipe.rebuild import ReadTable

CACHED_DESCRIPTORS = 4096

CACHED_BYTES = 1 << 22
"""Of their bodies; a shape takes some twenty times as much. No larger part than a sixteenth is kept."""


class Shape(Struct, eq=False):
    """A descriptor and what follows from it; one object for all equal descriptors."""

    body: bytes
    descriptor: TpDescriptor
    layout: ControlLayout
    lengths: tuple[int, ...]
    """Of the payloads."""
    frames: struct.Struct
    """Cuts the payload frames: length, payload, length, payload, …"""
    frames_bytes: int
    tensors: bool
    """Whether there are any."""


class ShapeTable:
    """Caches parsed descriptors by their bytes: a training loop has a handful of different ones."""

    def __init__(self, limits: Limits, read_table: ReadTable | None = None) -> None:
        """`read_table` lets lost descriptors be rebuilt."""
        self.read_table = read_table
        self._limits = limits
        self.known: dict[bytes, Shape] = {}
        """Shapes by the bytes of their descriptors."""
        self._bytes = 0

    def get(self, body: bytes) -> Shape:
        """The shape of a descriptor frame's body; raises `DecodeError`."""
        shape = self.known.get(body)
        if shape is None:
            descriptor, layout = read_descriptor(body, self._limits)
            lengths = tuple(payload.length for payload in descriptor.payloads)
            total = sum(lengths)
            if total > self._limits.payload_bytes:
                raise LimitExceeded(LAYER, "payload_bytes", self._limits.payload_bytes, total)
            frames = struct.Struct("<" + "".join(f"Q{n}s" for n in lengths))
            tensors = bool(descriptor.tensors)
            shape = Shape(body, descriptor, layout, lengths, frames, frames.size, tensors)
            if len(self.known) >= CACHED_DESCRIPTORS or self._bytes + len(body) > CACHED_BYTES:
                self.known.clear()
                self._bytes = 0
            if len(body) <= CACHED_BYTES >> 4:
                self.known[body] = shape
                self._bytes += len(body)
        return shape

    def lengths(self, body: bytes) -> tuple[ControlLayout, tuple[int, ...]]:
        """The layout and the lengths of the payloads; raises `DecodeError`."""
        shape = self.get(body)
        return shape.layout, shape.lengths
