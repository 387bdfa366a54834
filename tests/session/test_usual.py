"""How long after a request the lack of an answer says nothing."""

from __future__ import annotations

from rpcinspect.session.usual import END_S, due_s, usual_s


def test_nine_of_ten() -> None:
    assert usual_s([]) == 0.0
    assert usual_s([n * 1_000_000_000 for n in range(1, 11)]) == 10.0
    assert usual_s([1_000_000] * 99 + [9_000_000_000]) == 0.001


def test_what_is_due() -> None:
    assert due_s(0.0) == END_S
    assert due_s(1.0) == 10.0
