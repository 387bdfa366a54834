"""How much the tests try: enough for each change (`quick`), less (`fast`), or everything (`thorough`).

HYPOTHESIS_PROFILE names one of them; `make test-thorough` asks for everything, `make test-fast` for less. In:
what a test would try if time were no matter. Out: what it tries. A quick run leaves out only more of the
same: examples of a property, recordings that differ little, a view of each capture whose decoding other tests
hold to its truth.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")

PROFILES = {"fast": 15, "quick": 40, "thorough": 1000}
"""Examples of a property that asks for no number."""
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
THOROUGH = PROFILE == "thorough"
THINNER = 3 if PROFILE == "fast" else 1
"""Of so many examples and items that a quick run tries, a fast one tries one."""
FEW = 10
"""Examples that a property has at least, if it asks for so many."""
ALIKE = ("pairs", "torch-suite")
"""Folders of many recordings of one script."""
LONG = ("stress_basic", "stress_mpt_uv")
"""Recordings of 1,456 messages each, whose calls are all the same."""


def examples(wanted: int) -> int:
    """How many examples of a property are tried; `wanted` would be good to have."""
    return wanted * 10 if THOROUGH else max(min(wanted, FEW), wanted // 3 // THINNER)


def some(items: Sequence[Item], one_in: int = 4) -> list[Item]:
    """Some of items that are much alike: always the same ones."""
    return list(items if THOROUGH else items[:: one_in * THINNER])


def each_kind(items: Sequence[Item], kind: Callable[[Item], object]) -> list[Item]:
    """The first of each kind."""
    if THOROUGH:
        return list(items)
    firsts: dict[object, Item] = {}
    for item in items:
        firsts.setdefault(kind(item), item)
    return list(firsts.values())


def representative(paths: Sequence[Path]) -> list[Path]:
    """Captures without most of those that are like others of their folder."""
    if THOROUGH:
        return list(paths)
    alike = [path for path in paths if path.parent.name in ALIKE]
    kept = {*paths} - {*alike} | {*some(alike)}
    return [path for path in paths if path in kept and not path.name.startswith(LONG)]
