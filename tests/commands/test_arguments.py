"""Arguments that are more than a word."""

from __future__ import annotations

from rpcinspect.commands.arguments import names, renames


def test_names() -> None:
    assert names(["a,b", " c ", "a", ","]) == ("a", "b", "c")


def test_renames() -> None:
    assert renames(["a=b", "c=d"]) == {"a": "b", "c": "d"}
    assert renames(["a=b=c"]) == {"a": "b=c"}
    for wrong in (["a"], ["=b"], ["a="], ["a=b", "a=c"]):
        assert renames(wrong) is None
