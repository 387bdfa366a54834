"""The codes of differences, as the contract lists them."""

from __future__ import annotations

CODES = frozenset(
    {"missing", "extra", "repeated", "reordered", "latency", "function", "argument", "envelope", "field"}
    | {"device", "device-map", "dtype", "shape", "requires-grad", "quantizer", "form", "profile-events"}
    | {"value", "zero-sign", "nan-payload", "ulp", "error", "unknown"}
)
"""Those of the contract, and `device` for the devices of tensors."""
