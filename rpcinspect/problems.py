"""The two records that say what went wrong in a capture, and where.

In: what a stage found damaged or missing. Out: plain records, which sessions, views and pages show.
"""

from __future__ import annotations

from msgspec import Struct


class Location(Struct, frozen=True, kw_only=True):
    """A place in a capture that can be opened in Wireshark; whatever is not known is None."""

    capture: int | None = None
    """Index of the capture file among those that were opened together, from 0."""
    packet: int | None = None
    """Number of the packet in its file, from 1, as Wireshark counts."""
    flow: str | None = None
    """One direction of a TCP connection, `ip:port>ip:port`."""
    offset: int | None = None
    """Bytes from the start of that direction's stream."""


class Problem(Struct, frozen=True):
    """Something damaged or missing that decoding survived."""

    layer: str
    """`capture`, `tcp`, `store`, `tensorpipe`, `rpc`, `pickle` or `tensor`."""
    reason: str
    location: Location
