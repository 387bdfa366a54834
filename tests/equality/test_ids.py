"""Ids of two runs: learned in pairs, reported where they contradict each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.equality.ids import CONTEXT, FORK, NO_ID, RREF, WORKER, IdMap
from rpcinspect.rpc.types import GloballyUniqueId, pack_id
from tests.equality.mirrors import mirrored_ids


def test_the_first_pair_is_learned_and_no_other_accepted() -> None:
    ids = IdMap()
    assert ids.same(CONTEXT, 1, 7)
    assert ids.same(CONTEXT, 1, 7)
    assert ids.same(RREF, 1, 8)  # of another kind
    assert not ids.same(CONTEXT, 1, 8)
    assert not ids.same(CONTEXT, 2, 7)
    assert ids.refused == 2
    assert len(ids) == 2
    assert (ids.translate(CONTEXT, 1), ids.translate(CONTEXT, 2)) == (7, None)
    assert (ids.translate_back(CONTEXT, 7), ids.translate_back(CONTEXT, 8)) == (1, None)


def test_what_was_learned_of_a_wrong_pair_is_forgotten() -> None:
    ids = IdMap()
    ids.same(CONTEXT, 1, 1)
    mark = ids.mark()
    assert ids.same(CONTEXT, 2, 3)
    assert not ids.same(CONTEXT, 1, 3)
    ids.rollback(mark)
    assert ids.refused == 0
    assert ids.same(CONTEXT, 2, 2)
    assert ids.same(CONTEXT, 3, 3)


def test_no_id_equals_itself_only() -> None:
    ids = IdMap()
    assert ids.carried(WORKER, NO_ID, NO_ID)
    assert not ids.carried(WORKER, NO_ID, 0)
    assert not ids.carried(CONTEXT, pack_id(0, 3), NO_ID)
    assert len(ids) == 0


def test_an_id_is_of_the_worker_that_made_it() -> None:
    ids = IdMap()
    assert ids.carried(WORKER, 0, 2)
    assert ids.carried(CONTEXT, pack_id(0, 5), pack_id(2, 9))
    assert not ids.carried(CONTEXT, pack_id(0, 6), pack_id(1, 6))
    assert ids.carried(FORK, GloballyUniqueId(0, 1), GloballyUniqueId(2, 4))
    assert not ids.carried(FORK, GloballyUniqueId(1, 1), GloballyUniqueId(2, 5))


@given(
    st.lists(st.tuples(st.sampled_from((CONTEXT, RREF)), st.integers(0, 4), st.integers(0, 4)), max_size=30)
)
def test_it_is_one_to_one_and_has_a_mirror(pairs: list[tuple[str, int, int]]) -> None:
    ids, mirror = IdMap(), IdMap()
    accepted = set()
    for kind, a, b in pairs:
        same = ids.same(kind, a, b)
        assert mirror.same(kind, b, a) == same
        if same:
            accepted.add((kind, a, b))
    assert len({(kind, a) for kind, a, _ in accepted}) == len(accepted)
    assert len({(kind, b) for kind, _, b in accepted}) == len(accepted)
    other = mirrored_ids(ids)
    assert all(other.translate(kind, b) == ids.translate_back(kind, b) == a for kind, a, b in accepted)
