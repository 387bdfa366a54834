"""The pairs of captures that differ in one thing, and what is expected of comparing them.

In: captures/pairs/expected.json, written from what captures/training.py does. Out: a `Check` per line of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.truth import CAPTURES, capture_of

Json = dict[str, Any]


class Check(Struct, frozen=True):
    """One comparison: two captures and the options of `diff`."""

    a: str
    b: str
    flags: tuple[str, ...]
    verdict: str
    first: tuple[Json, ...]
    """The messages that may be called the first to differ; none if the runs are the same."""
    information: tuple[str, ...]
    """Codes that are told although the runs are the same."""

    def paths(self) -> tuple[Path, Path]:
        return capture_of(f"pairs/{self.a}"), capture_of(f"pairs/{self.b}")

    def __hash__(self) -> int:
        return hash((self.a, self.b, self.flags))

    def __str__(self) -> str:
        """The id of its tests."""
        return " ".join((self.b, *self.flags))


def checks() -> list[Check]:
    rows = json.loads((CAPTURES / "pairs" / "expected.json").read_text())
    return [
        Check(
            row["a"],
            row["b"],
            tuple(row["flags"]),
            row["verdict"],
            tuple(row["first"]),
            tuple(row["information"]),
        )
        for row in rows
    ]
