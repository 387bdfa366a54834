"""How much of hostile input is followed before a decoder gives up on that one item.

One frozen value, passed down from the pipeline. The defaults are far above what honest traffic needs.
"""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds per decoded item; a breach raises `LimitExceeded` with the bound and the value."""

    control_frame_bytes: int = 1 << 26
    """Handshake objects and descriptors."""
    payload_bytes: int = 1 << 31
    """One RPC payload; its bytes are held in memory while it is decoded."""
    nop_depth: int = 16
    nop_items: int = 1 << 20
    pickle_opcodes: int = 2_000_000
    pickle_depth: int = 200
    """Nesting of values that are followed when a pickle is rendered or encoded."""
    pickle_stack: int = 1 << 20
    pickle_memo: int = 1 << 20
    pickle_string_bytes: int = 1 << 31
    store_item_bytes: int = 1 << 24


DEFAULT_LIMITS = Limits()
