"""Changes in place: kept with what the pickle made; to anything else they are calls of their own."""

from __future__ import annotations

import pytest

from rpcinspect.limits import DEFAULT_LIMITS
from rpcinspect.pickles.python_state import State, build, extend, set_items, stack_global
from rpcinspect.pickles.tree import Dict, Global, PickleCall


def state(data: bytes = b"") -> State:
    return State(data, DEFAULT_LIMITS)


def test_lists_dicts_and_calls_are_changed_in_place() -> None:
    items: list[object] = [1]
    assert extend(state(), items, [2]) is items
    assert items == [1, 2]
    pairs = Dict()
    assert set_items(state(), pairs, ["a", 1]) is pairs
    assert pairs.pairs == [("a", 1)]
    call = PickleCall("f", ())
    assert extend(state(), call, [1]) is call
    assert set_items(state(), call, [1, 2]) is call
    assert build(state(), call, "x") is call
    assert (call.items, call.pairs, call.has_state, call.state) == ([1], [(1, 2)], True, "x")


@pytest.mark.parametrize("target", [Global("m", "x"), (1,), "text", None], ids=repr)
def test_anything_else_is_wrapped(target: object) -> None:
    machine = state()
    found = [extend(machine, target, [1]), set_items(machine, target, [1, 2]), build(machine, target, {})]
    assert machine.calls == found
    assert {(call.how, call.function) for call in found} == {("change", target)}


def test_items_after_the_state_are_a_change_too() -> None:
    machine = state()
    call = PickleCall("f", (), has_state=True)
    found = extend(machine, call, [1])
    assert (found.how, found.function, found.items) == ("change", call, [1])


def test_names_are_kept_once_and_in_order() -> None:
    machine = state()
    first = stack_global(machine, "m", "a")
    stack_global(machine, "m", "b")
    assert stack_global(machine, "m", "a") is first
    assert [str(name) for name in machine.globals] == ["m.a", "m.b"]
    with pytest.raises(ValueError, match="a name to import is a int"):
        stack_global(machine, "m", 5)


def test_text_and_counted_operands() -> None:
    machine = state(b"12\x003\nrest")
    assert machine.digits() == b"12"
    assert machine.take(2) == b"re"
    with pytest.raises(ValueError, match="no end"):
        machine.line()
