"""What is collected of ends, and what a handshake outweighs."""

from __future__ import annotations

from rpcinspect.session.identity import End, IdentityEvidence
from tests.session.records import pipe


def test_facts_count_only_what_is_new() -> None:
    evidence = IdentityEvidence()
    for _ in range(3):
        evidence.id(0, True, 1)
        evidence.name(0, True, "a")
        evidence.name(0, False, "a")
    assert evidence.facts == 3


def test_the_name_in_a_handshake_outweighs_messages() -> None:
    evidence = IdentityEvidence()
    evidence.name(0, True, "said")
    evidence.id(0, True, 4)
    assert evidence.of(pipe(name="own"), True).names == {"own"}
    assert evidence.of(pipe(name="own"), True).ids == {4}
    assert evidence.of(pipe(name=""), True).names == {"said"}
    assert evidence.of(pipe(name="own"), False).names == set()


def test_asking_adds_nothing() -> None:
    evidence = IdentityEvidence()
    evidence.of(pipe(), True)
    assert not evidence.ends


def test_ends_of_one_worker() -> None:
    end = End({"a"}, {1})
    end.add(End({"b"}, {1, 2}))
    assert (end.names, end.ids) == ({"a", "b"}, {1, 2})
