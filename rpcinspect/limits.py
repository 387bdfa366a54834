"""How much of hostile input is followed before a decoder gives up on that one item.

One frozen value, passed down from the pipeline. The defaults are far above what honest traffic needs.
Another one says how far compressed input is unpacked.
"""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds per decoded item; a breach raises `LimitExceeded` with the bound and the value."""

    control_frame_bytes: int = 1 << 26
    """Handshake objects and descriptors."""
    payload_bytes: int = 1 << 31
    """One RPC payload; its bytes are held in memory while it is decoded."""
    nop_items: int = 1 << 20
    pickle_opcodes: int = 2_000_000
    pickle_depth: int = 200
    """Nesting of values that are followed when a pickle is rendered or encoded."""
    pickle_stack: int = 1 << 20
    pickle_memo: int = 1 << 20
    pickle_string_bytes: int = 1 << 31
    store_item_bytes: int = 1 << 24


DEFAULT_LIMITS = Limits()


class Unpacking(Struct, frozen=True, kw_only=True):
    """How much of compressed input is read."""

    bytes: int | None = 100 * 10**9
    """Of what it holds, at most; None: all of it."""
    ratio: int | None = 200
    """How often what it takes packed; None: that is not looked at."""
    free_bytes: int = 10**9
    """So much may be there at any ratio: tensors of zeros are honest."""

    def allowed(self, packed: int) -> int | None:
        """Bytes that are read of an input of so many packed ones; None: all."""
        bounds = [] if self.bytes is None else [self.bytes]
        if self.ratio is not None:
            bounds.append(max(self.free_bytes, self.ratio * packed))
        return min(bounds, default=None)


DEFAULT_UNPACKING = Unpacking()
