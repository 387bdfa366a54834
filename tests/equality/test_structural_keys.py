"""Keys of dicts and items of sets as something that can be looked up."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rpcinspect.equality.structural_keys import by_key, key_of, match
from rpcinspect.pickles.tree import Global, PickleCall, Value
from tests.equality.builders import tree


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", "a", True),
        (1, 1.0, False),
        (1, True, False),
        (b"a", "a", False),
        (0.0, -0.0, False),
        (math.nan, math.nan, True),
        ((1, ("a", None)), (1, ("a", None)), True),
        ((1, 2), (1, 3), False),
        (frozenset((1, 2, 3)), frozenset((3, 2, 1)), True),
        (bytearray(b"a"), b"a", False),
    ],
)
def test_keys(one: Any, other: Any, same: bool) -> None:
    assert (key_of(tree(one)) == key_of(tree(other))) == same
    hash(key_of(tree(one)))


def test_deep_and_odd_values_have_keys_too() -> None:
    deep: Value = ()
    for _ in range(5000):
        deep = (deep,)
    hash(key_of(deep))
    node = PickleCall(Global("m", "f"), ())
    node.args = (node,)
    hash(key_of(node))
    hash(key_of({1: 2}))
    assert key_of(Global("__mp_main__", "C")) == key_of(Global("__main__", "C"))


def test_plain_keys_are_once_and_others_numbered() -> None:
    nodes: list[Value] = ["a", PickleCall(Global("m", "f"), ()), "a", PickleCall(Global("m", "f"), ())]
    assert list(by_key(list(enumerate(nodes)), lambda pair: pair[1]).values()) == [
        (2, "a"),
        (1, nodes[1]),
        (3, nodes[3]),
    ]


def test_matches_are_the_same_both_ways() -> None:
    one, other = {"b": 1, "a": 2, "x": 3}, {"a": 1, "y": 2, "b": 3}
    shared, only_one, only_other = match(one, other)
    assert (shared, only_one, only_other) == (["a", "b"], ["x"], ["y"])
    assert match(other, one) == (shared, only_other, only_one)
    assert match(one, dict(one)) == (["b", "a", "x"], [], [])
