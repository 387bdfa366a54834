"""CauseColumn come back as they were given, whether they stay as objects or not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from rpcinspect.run.possible_causes import CauseColumn, PossibleCauses

ROWS = 8
GIVEN = st.builds(
    PossibleCauses,
    st.lists(st.integers(0, ROWS - 1), max_size=3, unique=True).map(tuple),
    st.booleans(),
    unseen=st.booleans(),
)


@given(st.dictionaries(st.integers(0, ROWS - 1), GIVEN))
def test_what_is_given_comes_back(given_: dict[int, PossibleCauses]) -> None:
    explanations = CauseColumn(ROWS)
    other = PossibleCauses((), True)
    for row, one in given_.items():
        explanations[row] = one
    for row in range(ROWS):
        found = explanations.of(row, other)
        if row not in given_:
            assert found is other
            continue
        one = given_[row]
        assert (found.rows, found.own, found.unseen) == (one.rows, one.own, one.unseen)
        assert found.certain == one.certain
        assert one.certain or astuple(found) == astuple(one)
    assert set(explanations.doubtful) == {row for row, one in given_.items() if not one.certain}


def test_a_certain_one_is_a_number() -> None:
    explanations = CauseColumn(3)
    explanations[1], explanations[2] = PossibleCauses((), True), PossibleCauses((0,))
    assert not explanations.doubtful
    assert explanations.parent[2] == 0
    assert explanations.parent[1] < 0
