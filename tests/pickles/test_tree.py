"""The nodes: names compare by value, everything else by identity."""

from __future__ import annotations

from rpcinspect.pickles.tree import Dict, Global, PersistentRef, PickleCall, Set, children


def test_names_compare_by_value_and_objects_by_identity() -> None:
    assert Global("m", "f") == Global("m", "f")
    assert str(Global("m", "C.f")) == "m.C.f"
    assert Dict() != Dict()


def test_the_last_pair_of_a_key_counts() -> None:
    node = Dict([("a", 1), (("a",), 2), ("a", 3)])
    assert node.get("a") == 3
    assert node.get("b", 9) == 9


def test_children() -> None:
    call = PickleCall(
        "f", "args", "kwargs", has_state=True, state="state", items=["item"], pairs=[("k", "v")]
    )
    assert list(children(call)) == ["f", "args", "kwargs", "state", "item", "k", "v"]
    assert list(children(PickleCall("f", ()))) == ["f", ()]
    assert list(children(Dict([(1, 2)]))) == [1, 2]
    assert list(children(Set([1]))) == [1]
    assert list(children(PersistentRef("id"))) == ["id"]
    assert list(children([1, 2])) == [1, 2]
    assert list(children("ab")) == []
