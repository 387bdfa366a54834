"""Arguments that are more than a word."""

from __future__ import annotations

from rpcinspect.commands.arguments import names, read_size, renames


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
