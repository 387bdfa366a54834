"""What counts as a difference: tolerances, what is ignored, what is called what.

Out: `Rules`, a plain value; every comparison takes one. By default everything is compared by its bits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field

IGNORABLE: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "device": frozenset({"device", "device-map"}),
        "device-map": frozenset({"device-map"}),
        "latency": frozenset({"latency"}),
        "form": frozenset({"form"}),
        "requires-grad": frozenset({"requires-grad"}),
        "zero-sign": frozenset({"zero-sign"}),
        "nan-payload": frozenset({"nan-payload"}),
        "profile-events": frozenset({"profile-events"}),
        "error": frozenset({"error"}),
        "missing": frozenset(),
        "extra": frozenset(),
    }
)
"""What `Rules.ignore` may name → the codes of difference that it drops. `missing` and `extra` drop whole
calls that the first or the second run has alone, whatever they are told as; an answer that one run lacks to a
call of both is never dropped by them."""

INFORMATION = frozenset({"latency", "reordered"})
"""Codes that are told and never make two messages different, unless `strict` in case of `reordered`."""


class Tolerance(NamedTuple):
    """Allows |a − b| up to `atol` + `rtol` × the smaller of |a| and |b|."""

    rtol: float
    atol: float


TORCH_TOLERANCES: Mapping[str, Tolerance] = MappingProxyType(
    {
        "float16": Tolerance(1e-3, 1e-5),
        "bfloat16": Tolerance(1.6e-2, 1e-5),
        "float32": Tolerance(1.3e-6, 1e-5),
        "float64": Tolerance(1e-7, 1e-7),
        "complex32": Tolerance(1e-3, 1e-5),
        "complex64": Tolerance(1.3e-6, 1e-5),
        "complex128": Tolerance(1e-7, 1e-7),
    }
)
"""The defaults of torch.testing.assert_close. It has none for other types, nor do we: their bits count. Its
tolerance for quantized tensors is for their dequantized values; here their integers count."""


class Rules(Struct, frozen=True, kw_only=True):
    """Rules of a comparison. Without any tolerance, elements are compared by their bits alone."""

    rtol: float | None = None
    """Of floats and complex numbers only. One given alone leaves the other at what torch.testing has for the
    dtype, or at 0 where it has none."""
    atol: float | None = None
    by_dtype: bool = False
    """Neither of the two is given, and both are torch.testing's."""
    ulp: int = 4
    """Elements at most this many steps apart are told as `ulp`, not as `value`; they differ all the same."""
    ignore: frozenset[str] = frozenset()
    """Keys of `IGNORABLE`."""
    strict: bool = False
    """Whether differences of form count, and the order of independent calls."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Names of workers of the first run → of the second."""
    max_per_message: int = 32
    """Differences of one message that are told; the first is always among them."""

    def __post_init__(self) -> None:
        """Raises ValueError for what can't be a rule."""
        unknown = sorted(self.ignore - IGNORABLE.keys())
        if unknown:
            raise ValueError(f"{unknown[0]!r} can't be ignored; these can: {', '.join(sorted(IGNORABLE))}")
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite number from 0 up, not {value}")
        if len(set(self.renames.values())) != len(self.renames):
            raise ValueError("two workers are renamed to the same name")

    def __hash__(self) -> int:
        """Hashes all but the renames, which are a mapping."""
        return hash(
            (self.rtol, self.atol, self.by_dtype, self.ulp, self.ignore, self.strict, self.max_per_message)
        )

    def tolerance(self, dtype: str) -> Tolerance | None:
        """What is tolerated in elements of a dtype; None: their bits count."""
        if self.rtol is None and self.atol is None and not self.by_dtype:
            return None
        default = TORCH_TOLERANCES.get(dtype)
        if default is None:
            if not dtype.startswith("float"):
                return None
            default = Tolerance(0.0, 0.0)
        found = Tolerance(
            default.rtol if self.rtol is None else self.rtol, default.atol if self.atol is None else self.atol
        )
        return found if found != (0.0, 0.0) else None

    def ignores(self, code: str) -> bool:
        """Whether differences of this code are dropped."""
        return bool(self.ignore) and any(code in IGNORABLE[name] for name in self.ignore)

    def counts(self, code: str) -> bool:
        """Whether a difference of this code makes two messages different."""
        if code == "form" or code == "reordered":
            return self.strict
        return code not in INFORMATION

    def worker_name(self, name: str) -> str:
        """What a worker of the first run is called in the second."""
        return self.renames.get(name, name)

    def renamed_text(self, text: str) -> str:
        """A text of the first run with names of workers, as whole words, as the second run has them."""
        if not self.renames:
            return text
        names = "|".join(re.escape(name) for name in sorted(self.renames, key=len, reverse=True))
        return re.sub(rf"(?<![\w.-])(?:{names})(?![\w-])", lambda match: self.renames[match[0]], text)
