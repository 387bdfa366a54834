"""The C++ Pickler's dialect, written: against the wire, against torch itself, and back through the reader."""

from __future__ import annotations

import io
import math
import zipfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import Limits
from rpcinspect.pickles.jit import Forms, read_jit
from rpcinspect.pickles.jit_write import OWNED, write_jit
from rpcinspect.pickles.tree import Dict, Global, PersistentRef, PickleCall, Set
from tests.thorough import examples

from . import vectors
from .plain import plain, read_with_forms


@pytest.mark.parametrize("name", vectors.JIT)
def test_what_was_read_is_written_again(name: str) -> None:
    data = vectors.JIT[name]
    assert write_jit(*read_with_forms(data)) == data


@pytest.mark.parametrize(
    "name",
    [
        "FORWARD_AUTOGRAD",
        "BACKWARD",
        "FETCH",
        "CLEANUP",
        "FETCH_RET",
        "SCRIPT_RREF",
        "PROFILING",
        "TENSORS",
        "SPARSE",
    ],
)
def test_most_messages_need_no_forms(name: str) -> None:
    data = vectors.JIT[name]
    assert write_jit(read_jit(data)) == data


def test_ids_with_two_owners_are_memoised_on_demand() -> None:
    assert write_jit(((0, 3), (0, 5)), Forms(parts=(OWNED, OWNED))) == vectors.USER_DELETE
    assert write_jit(((1, 4),), Forms(parts=(OWNED,))) == vectors.CHILD_ACCEPT


def test_one_changed_field_changes_that_field_alone() -> None:
    value, forms = read_with_forms(vectors.BACKWARD)
    grad, context, _, retain = value
    changed = write_jit((grad, context, 7, retain), forms)
    assert changed == vectors.BACKWARD.replace(b"K\x01\x89", b"K\x07\x89")
    widened = write_jit((grad, context, 1 << 40, retain), forms)
    assert widened == vectors.BACKWARD.replace(b"K\x01\x89", b"\x8a\x08\x00\x00\x00\x00\x00\x01\x00\x00\x89")


def test_a_replaced_part_of_another_shape_is_written_by_default() -> None:
    _, forms = read_with_forms(vectors.USER_DELETE)
    assert read_jit(write_jit((1, [2, "x"], 3, 4), forms)) == (1, [2, "x"], 3, 4)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, b"K\x00"),
        (255, b"K\xff"),
        (256, b"M\x00\x01"),
        (65536, b"J\x00\x00\x01\x00"),
        (-1, b"J\xff\xff\xff\xff"),
        (1 << 31, b"\x8a\x08\x00\x00\x00\x80\x00\x00\x00\x00"),
        (True, b"\x88"),
        (False, b"\x89"),
        (None, b"N"),
        (1.5, b"G\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        ("a", b"X\x01\x00\x00\x00aq\x00"),
        (("a", "a"), b"X\x01\x00\x00\x00aq\x00h\x00\x86"),
        (("a", b"a"), b"X\x01\x00\x00\x00aq\x00h\x00\x86"),
        ((), b")"),
        ((1, 2, 3, 4), b"(K\x01K\x02K\x03K\x04t"),
        (Dict(), b"}(u"),
        ([], b"](e"),
    ],
)
def test_defaults(value: object, expected: bytes) -> None:
    assert write_jit(value) == b"\x80\x02" + expected + b"."


def test_shared_storages_are_written_once() -> None:
    storage = ("storage", Global("torch", "FloatStorage"), "0", "cpu", 8)
    data = write_jit((PersistentRef(storage), PersistentRef(storage)))
    assert data.count(b"Q") == 1
    assert plain(read_jit(data)) == (("persistent", plain(storage)),) * 2


def test_more_than_256_memo_entries() -> None:
    names = [str(n) for n in range(300)]
    data = write_jit((names, names[-1]))
    assert b"r\x2b\x01\x00\x00" in data
    assert b"j\x2b\x01\x00\x00" in data
    assert read_jit(data) == (names, "299")
    assert write_jit(*read_with_forms(data)) == data


def test_refusals() -> None:
    with pytest.raises(DecodeError, match="a Set has no place"):
        write_jit(Set())
    with pytest.raises(DecodeError, match="more than 64 bits"):
        write_jit(1 << 63)
    with pytest.raises(DecodeError, match="by newobj_ex"):
        write_jit(PickleCall(Global("m", "C"), (), Dict(), "newobj_ex"))
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(LimitExceeded, match="pickle_depth = 200"):
        write_jit(cycle)
    with pytest.raises(LimitExceeded, match="pickle_depth = 2"):
        write_jit([[[1]]], limits=Limits(pickle_depth=2))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.just(b"\x80\xff"),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.lists(st.tuples(st.text(max_size=3), inner), max_size=3).map(Dict),
        st.builds(
            lambda args: PickleCall(Global("torch.jit._pickle", "f"), args),
            st.lists(inner, max_size=3).map(tuple),
        ),
    ),
    max_leaves=20,
)


@settings(max_examples=examples(150), deadline=None)
@given(VALUES)
def test_reading_gives_back_what_was_written(value: Any) -> None:
    data = write_jit(value)
    found, forms = read_with_forms(data)
    assert plain(found) == plain(value)
    assert write_jit(found, forms) == data


def test_nan_keeps_its_payload() -> None:
    data = b"\x80\x02G\x7f\xf8\x00\x00\x00\x00\x00\x2a."
    value, forms = read_with_forms(data)
    assert math.isnan(value)
    assert write_jit(value, forms) == data


@pytest.mark.parametrize(
    "make",
    [
        lambda torch: [1, 2],
        lambda torch: [1.0],
        lambda torch: [True],
        lambda torch: [[1], [2]],
        lambda torch: ["a", "b", "a"],
        lambda torch: (1, -1, 70000, 1 << 40, -(1 << 40), 255, 256, 65535, 65536),
        lambda torch: 1j,
        lambda torch: (torch.device("cpu"), torch.device("cuda", 1), torch.device("cpu")),
        lambda torch: torch.ones(2, 3),
        lambda torch: [torch.ones(2), torch.zeros(2)],
        lambda torch: [str(n) for n in range(300)],
    ],
)
def test_torch_writes_the_same(make: Any) -> None:
    torch = pytest.importorskip("torch")
    archive = zipfile.ZipFile(io.BytesIO(torch._C._pickle_save(make(torch))))
    (name,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
    data = archive.read(name)
    value, forms = read_with_forms(data)
    assert write_jit(value, forms) == data
    assert write_jit(value) == data
