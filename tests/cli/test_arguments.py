"""Arguments that are more than a word."""

from __future__ import annotations

import pytest

from rpcinspect.cli.arguments import above_zero, context_id, names, read_size, renames, rules, unpacking
from rpcinspect.cli.guard import UsageMistake
from rpcinspect.limits import Unpacking


def test_names() -> None:
    assert names(["a,b", " c ", "a", ","]) == ("a", "b", "c")


def test_renames() -> None:
    assert renames(["a=b", "c=d"]) == {"a": "b", "c": "d"}
    assert renames(["a=b=c"]) == {"a": "b=c"}
    for wrong in (["a"], ["=b"], ["a="], ["a=b", "a=c"], ["a=c", "b=c"]):
        with pytest.raises(UsageMistake, match="--rename: not X=Y with each name once"):
            renames(wrong, "X=Y")


def test_contexts() -> None:
    assert [context_id(given) for given in (None, "3", "0:3", "1:0")] == [None, 3, 3, 1 << 48]
    for wrong in ("", "x", "-1", "1:x"):
        with pytest.raises(UsageMistake, match=f"--context {wrong}: not a context id"):
            context_id(wrong)


def test_tolerances_times_and_factors() -> None:
    made = rules(0.5, None, strict=True)
    assert (made.rtol, made.atol, made.strict) == (0.5, None, True)
    assert (above_zero("--speed", None), above_zero("--speed", 2.0)) == (None, 2.0)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageMistake, match=r"--speed .*: a finite number above 0"):
            above_zero("--speed", wrong)


def test_sizes() -> None:
    assert read_size("4GB") == 4_000_000_000
    assert read_size(" 1.5 gib ") == 3 << 29
    assert [read_size(f"2{unit}") for unit in ("B", "KB", "MiB", "TB")] == [2, 2000, 2 << 20, 2 * 10**12]
    for wrong in ("", "4", "GB", "-1GB", "4 GBs", "1e3MB", "1.GB", "٤GB", "0GB", "9" * 10 + "B"):
        assert read_size(wrong) is None


def test_how_far_captures_are_unpacked() -> None:
    assert unpacking(None) == Unpacking()
    assert unpacking("none").allowed(1) is None
    assert unpacking("500GB").allowed(1) == 500 * 10**9
    for wrong in ("", "0B", "500", "lots"):
        with pytest.raises(UsageMistake, match=f"--unpack-limit {wrong}: a size"):
            unpacking(wrong)
