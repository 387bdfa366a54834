"""Verdicts come back as they were given, whether they stay as objects or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from rpcinspect.run.verdicts import Verdict, Verdicts

ROWS = 8
GIVEN = st.builds(
    Verdict,
    st.lists(st.integers(0, ROWS - 1), max_size=3, unique=True).map(tuple),
    st.booleans(),
    unseen=st.booleans(),
)


@given(st.dictionaries(st.integers(0, ROWS - 1), GIVEN))
def test_what_is_given_comes_back(given_: dict[int, Verdict]) -> None:
    verdicts = Verdicts(ROWS)
    other = Verdict((), True)
    for row, verdict in given_.items():
        verdicts[row] = verdict
    for row in range(ROWS):
        if row not in given_:
            assert verdicts.get(row, other) is other
            with pytest.raises(KeyError):
                verdicts[row]
            continue
        found, verdict = verdicts.get(row, other), given_[row]
        assert (found.rows, found.own, found.unseen) == (verdict.rows, verdict.own, verdict.unseen)
        assert found.certain == verdict.certain
        assert verdict.certain or astuple(found) == astuple(verdict)
    assert set(verdicts.doubtful) == {row for row, verdict in given_.items() if not verdict.certain}


def test_a_second_verdict_takes_the_place_of_the_first() -> None:
    verdicts = Verdicts(2)
    verdicts[1] = Verdict((0,), True)
    verdicts[1] = Verdict((0,), False)
    assert not verdicts.doubtful
    assert verdicts.parent[1] == 0


def test_a_copy_takes_the_place_of_what_was_there() -> None:
    verdicts = Verdicts(3)
    verdicts[1], verdicts[2] = Verdict((0,), True), Verdict((0,), False)
    verdicts.copy(2, 1)
    assert verdicts[2] is verdicts[1]
    verdicts[1] = Verdict((0,), False)
    verdicts.copy(2, 1)
    assert not verdicts.doubtful
    assert verdicts[2].rows == (0,)
