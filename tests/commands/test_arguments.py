"""Arguments that are more than a word."""

from __future__ import annotations

import pytest

from rpcinspect.commands.arguments import context_id, names, renames


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("7", 7),
        ("0:7", 7),
        ("1:1", (1 << 48) + 1),
        ("281474976710657", (1 << 48) + 1),
        ("x", None),
        ("1:", None),
        (":1", None),
        ("65535:0", -1 << 48),
        ("65536:1", None),
        (f"1:{1 << 48}", None),
        (str(1 << 63), None),
        ("-1", None),
        ("", None),
    ],
)
def test_context_ids(given: str, found: int | None) -> None:
    assert context_id(given) == found


def test_names() -> None:
    assert names(["a,b", " c ", "a", ","]) == ("a", "b", "c")


def test_renames() -> None:
    assert renames(["a=b", "c=d"]) == {"a": "b", "c": "d"}
    assert renames(["a=b=c"]) == {"a": "b=c"}
    for wrong in (["a"], ["=b"], ["a="], ["a=b", "a=c"]):
        assert renames(wrong) is None
