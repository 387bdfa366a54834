"""The records of what went wrong: values, of which nothing has to be known."""

from __future__ import annotations

import pickle

import pytest
from msgspec import structs

from rpcinspect.problems import Location, Problem


def test_what_is_not_known_of_a_place_is_none() -> None:
    assert structs.astuple(Location()) == (None, None, None, None)
    assert Location(packet=3) == Location(capture=None, packet=3)


def test_problems_are_values() -> None:
    one = Problem("tcp", "lost", Location(packet=1))
    assert one == Problem("tcp", "lost", Location(packet=1))
    assert len({one, Problem("tcp", "lost", Location(packet=1))}) == 1
    with pytest.raises(AttributeError):
        one.reason = "found"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(one)) == one
