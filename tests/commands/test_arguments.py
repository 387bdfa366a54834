"""Arguments that are more than a word."""

from __future__ import annotations

import pytest

from rpcinspect.commands.arguments import names, read_size, renames, unpacking
from rpcinspect.limits import Unpacking


def test_names() -> None:
    assert names(["a,b", " c ", "a", ","]) == ("a", "b", "c")


def test_renames() -> None:
    assert renames(["a=b", "c=d"]) == {"a": "b", "c": "d"}
    assert renames(["a=b=c"]) == {"a": "b=c"}
    for wrong in (["a"], ["=b"], ["a="], ["a=b", "a=c"]):
        assert renames(wrong) is None


def test_sizes() -> None:
    assert read_size("4GB") == 4_000_000_000
    assert read_size(" 1.5 gib ") == 3 << 29
    assert [read_size(f"2{unit}") for unit in ("B", "KB", "MiB", "TB")] == [2, 2000, 2 << 20, 2 * 10**12]
    for wrong in ("", "4", "GB", "-1GB", "4 GBs", "1e3MB", "1.GB", "٤GB", "9" * 10 + "B"):
        assert read_size(wrong) is None


def test_how_far_captures_are_unpacked() -> None:
    assert unpacking(None) == Unpacking()
    assert unpacking("none").allowed(1) is None
    assert unpacking("500GB").allowed(1) == 500 * 10**9
    for wrong in ("", "0B", "500", "lots"):
        with pytest.raises(ValueError, match="no size"):
            unpacking(wrong)
