"""The inert tree -> the bytes that upstream's C++ Pickler writes for it (protocol 2)."""

from __future__ import annotations

from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.rpc.pickles.jit import Forms
from rpcinspect.rpc.pickles.tree import Value


def write_jit(value: Value, forms: Forms | None = None, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """A JIT pickle of the value, byte for byte as it was read if `forms` are those of the reading."""
    raise NotImplementedError
