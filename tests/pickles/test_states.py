"""What states set, in the forms in which classes take them."""

from __future__ import annotations

import pytest

from rpcinspect.pickles.states import ORDERED, States
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Value

FUNCTION = Global("app", "f")
HIDING: dict[str, tuple[Value, bool]] = {
    # a state that names `run` → whether only a `__setstate__` of the class's own could set it
    "a dict": (Dict([("run", FUNCTION)]), False),
    "slots": ((None, Dict([("run", FUNCTION)])), False),
    "a dict in a dict": (Dict([("options", Dict([("run", FUNCTION)]))]), True),
    "a list of pairs": ([["run", FUNCTION]], True),
    "a tuple of pairs": ((("a", 1), ("run", FUNCTION), ("b", 2)), True),
    "an ordered dict": (PickleCall(ORDERED, (), None, "reduce", pairs=[("run", FUNCTION)]), True),
}


def of(state: Value) -> PickleCall:
    return PickleCall(Global("app", "Trainer"), (), None, "newobj", True, state)


@pytest.mark.parametrize("what", HIDING)
def test_what_hides_a_method(what: str) -> None:
    state, only_deep = HIDING[what]
    states = States()
    assert states.hides(of(state), "run", deep=True)
    assert states.hides(of(state), "run") is not only_deep
    assert not states.hides(of(state), "stop", deep=True)


def test_hooks_hide_what_calls_them_unless_there_are_none() -> None:
    hooks = Dict([("_forward_hooks", Dict([(0, FUNCTION)]))])
    assert States().hides(of(hooks), "forward")
    assert not States().hides(of(Dict([("_forward_hooks", Dict([])), ("_backward_hooks", None)])), "forward")


@pytest.mark.parametrize(
    ("state", "own", "wrong"),
    [
        (Dict([("lr", 0.1)]), False, False),
        (Dict([("__class__", FUNCTION)]), False, True),
        ([("lr", 0.1)], False, True),
        ([("lr", 0.1)], True, False),
        (Dict([("options", Dict([("__class__", FUNCTION)]))]), True, True),
        (Dict([("options", Dict([(of(None), 1)]))]), True, False),  # keys of an enumeration
        (Dict([(of(None), FUNCTION)]), True, True),  # a text of numpy would be a name
    ],
)
def test_states_that_no_pickling_writes(state: Value, own: bool, wrong: bool) -> None:
    assert bool(States().wrong(state, own=own)) is wrong
