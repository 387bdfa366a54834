"""What is collected of ends, and what a handshake outweighs."""

from __future__ import annotations

from rpcinspect.session.witness import End, Witness
from tests.session.records import pipe


def test_facts_count_only_what_is_new() -> None:
    witness = Witness()
    for _ in range(3):
        witness.id(0, True, 1)
        witness.name(0, True, "a")
        witness.name(0, False, "a")
    assert witness.facts == 3


def test_the_name_in_a_handshake_outweighs_messages() -> None:
    witness = Witness()
    witness.name(0, True, "said")
    witness.id(0, True, 4)
    assert witness.of(pipe(name="own"), True).names == {"own"}
    assert witness.of(pipe(name="own"), True).ids == {4}
    assert witness.of(pipe(name=""), True).names == {"said"}
    assert witness.of(pipe(name="own"), False).names == set()


def test_asking_adds_nothing() -> None:
    witness = Witness()
    witness.of(pipe(), True)
    assert not witness.ends


def test_ends_of_one_worker() -> None:
    end = End({"a"}, {1})
    end.add(End({"b"}, {1, 2}))
    assert (end.names, end.ids) == ({"a", "b"}, {1, 2})
