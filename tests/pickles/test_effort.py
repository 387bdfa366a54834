"""What is shared by many costs as often as it is used, and what is not is never too much."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.pickles.effort import MAX_KEY_PARTS, Effort, parts
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Value

FUNCTION = Global("builtins", "frozenset")


def calls_of(value: Value, count: int) -> Effort:
    effort = Effort()
    for _ in range(count):
        effort.call(PickleCall(FUNCTION, (value,), None, "reduce"))
    return effort


def test_a_list_that_one_call_has() -> None:
    assert not calls_of([0] * 1000, 1).is_too_much(1, 1000)


def test_a_list_that_a_thousand_calls_have() -> None:
    assert calls_of([0] * 1000, 1000).is_too_much(1000, 3000)
    assert calls_of(Dict([(0, 0)] * 1000), 1000).is_too_much(1000, 3000)


def test_a_list_that_is_hashed_again() -> None:
    effort, items = Effort(), [(1, 2)] * 1000
    assert not effort.again(items)
    assert not effort.keys(items)
    assert not effort.hashes_too_much(1, 2000)
    assert all(effort.again(items) for _ in range(1000))
    assert effort.hashes_too_much(1000, 3000)


def test_a_key_of_too_many_parts() -> None:
    key: Value = (1,)
    for _ in range(MAX_KEY_PARTS.bit_length()):
        key = (key, key)
    assert Effort().keys([key])
    assert not Effort().keys([(key, key)[:0]])


def test_parts_are_those_of_tuples_and_dicts_each_once() -> None:
    inner = (1, "a")
    whole = (inner, inner, Dict([("k", inner)]), [inner])
    assert [part for part in parts(whole) if part is inner] == [inner]
    assert [part for part in parts(whole) if type(part) is list] == [[inner]]


values = st.recursive(
    st.integers() | st.text(max_size=5) | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    | st.frozensets(st.integers(), max_size=4) | st.tuples(inner, inner),
)  # fmt: skip


@given(values)
def test_no_honest_pickle_is_too_much(value: Any) -> None:
    pickled = read_python_pickle(pickle.dumps({"a": value, "b": value}, 4))
    effort = Effort()
    for call in pickled.calls:
        effort.call(call)
    assert not effort.is_too_much(len(pickled.calls), pickled.end)
