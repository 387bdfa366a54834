"""Integers in pickles of CPython: found by their places, replaced, loaded by CPython again."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError
from rpcinspect.pickles.opcodes import number_integers, rewrite

INTEGERS = st.integers() | st.integers(-1 << 63, (1 << 63) - 1) | st.integers(-70_000, 70_000)
ATOMS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner)
        | st.lists(inner, max_size=2).map(lambda items: [items, items])
    ),
    max_leaves=25,
)


def mapped(value: Any, table: dict[int, int]) -> Any:
    """The value with every integer looked up."""
    if type(value) is int:
        return table[value]
    if type(value) in (list, tuple):
        return type(value)(mapped(item, table) for item in value)
    if type(value) is dict:
        return {key: mapped(item, table) for key, item in value.items()}
    return value


@given(VALUES, st.integers(0, 5), st.data())
def test_cpython_loads_the_other_integers(value: object, protocol: int, data: st.DataObject) -> None:
    numbered = number_integers(pickle.dumps(value, protocol))
    table = {i: data.draw(INTEGERS) for i in dict.fromkeys(numbered.integers)}
    changes = {n: table[i] for n, i in enumerate(numbered.integers)}
    assert pickle.loads(rewrite(numbered, changes)) == mapped(value, table)
    assert rewrite(numbered, {}) == rewrite(numbered, dict(enumerate(numbered.integers))) == numbered.data


@given(VALUES, st.integers(2, 5), st.data())
def test_there_and_back(value: object, protocol: int, data: st.DataObject) -> None:
    numbered = number_integers(pickle.dumps(value, protocol))
    there = {n: data.draw(INTEGERS) for n in range(len(numbered.integers))}
    other = number_integers(rewrite(numbered, there))
    assert other.integers == tuple(there.values())
    assert rewrite(other, dict(enumerate(numbered.integers))) == numbered.data


@given(st.lists(st.binary(max_size=4) | st.just(b"x" * 70_000) | INTEGERS, max_size=40), st.integers(4, 5))
def test_several_frames(value: list[object], protocol: int) -> None:
    """CPython ends a frame at 64 KiB and leaves what is longer outside of frames."""
    value = [b"y" * 40_000, *value, b"z" * 40_000, 5]
    numbered = number_integers(pickle.dumps(value, protocol))
    patched = rewrite(numbered, dict.fromkeys(range(len(numbered.integers)), 1 << 40))
    expected = [1 << 40 if type(item) is int else item for item in value]
    assert pickle.loads(patched) == expected
    # read from a file, CPython takes a frame's length at its word
    assert pickle.load(io.BytesIO(patched)) == expected


def test_the_tree_has_numbers_for_integers() -> None:
    numbered = number_integers(pickle.dumps([7, (300, True), [7, -1], "7"], 4))
    assert numbered.integers == (7, 300, 7, -1)
    assert numbered.pickle.root == [0, (1, True), [2, 3], "7"]


def test_a_tuple_that_comes_twice_is_one_place() -> None:
    pair = (1000, 2000)
    numbered = number_integers(pickle.dumps([pair, pair], 4))
    assert numbered.integers == (1000, 2000)
    assert pickle.loads(rewrite(numbered, {1: 3})) == [(1000, 3), (1000, 3)]


def test_what_follows_the_pickle_stays() -> None:
    numbered = number_integers(pickle.dumps(5) + b"K\x01rest")
    assert numbered.integers == (5,)
    assert rewrite(numbered, {0: 70_000}).endswith(b".K\x01rest")


def test_protocol_0_writes_true_as_an_integer() -> None:
    numbered = number_integers(b"(I01\nI00\nI1\nL2L\nt.")
    assert numbered.integers == (1, 2)
    assert pickle.loads(rewrite(numbered, {0: 5, 1: 600})) == (True, False, 5, 600)


@pytest.mark.parametrize(
    "data", [b"", b"K", b"\x80\x04K\x01", b"I5", b"Z.", b"\x80\x04\x95\x01" + bytes(7) + b"M\0\0."]
)
def test_damage(data: bytes) -> None:
    with pytest.raises(DecodeError):
        number_integers(data)


def test_a_frame_within_a_frame() -> None:
    """CPython accepts it; both lengths follow."""
    inner = b"\x95" + (4).to_bytes(8, "little") + b"K\x01K\x02"
    data = b"\x80\x04\x95" + (len(inner) + 2).to_bytes(8, "little") + inner + b"\x86."
    assert pickle.loads(data) == (1, 2)
    numbered = number_integers(data)
    assert numbered.frames[1][1] - numbered.frames[1][0] == 4
    assert pickle.loads(rewrite(numbered, {0: 70_000})) == (70_000, 2)
    crossed = data.replace((4).to_bytes(8, "little"), (3).to_bytes(8, "little"))
    assert pickle.loads(crossed) == (1, 2)
    with pytest.raises(DecodeError, match="a frame ends inside an integer"):
        rewrite(number_integers(crossed), {1: 70_000})
