"""Where the parts of a value are written: Python's own unpickler makes the same of those bytes alone."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.pickles.jit import read_jit
from rpcinspect.pickles.spans import MAX_OPCODES, PickleSpan, spans_of
from tests.places import recorded
from tests.replayer.planning.pickled import name, request, rref, tensor
from tests.views.opened import opened

ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
    ),
    max_leaves=25,
)


def dumped(value: Any, protocol: int, *, memo: bool) -> bytes:
    out = io.BytesIO()
    pickler = pickle.Pickler(out, protocol)
    pickler.fast = not memo
    pickler.dump(value)
    return out.getvalue()


def check(data: bytes, value: Any, span: PickleSpan, protocol: int) -> None:
    assert pickle.loads(b"\x80" + bytes([protocol]) + data[span.start : span.end] + b".") == value
    parts = [part for pair in value.items() for part in pair] if type(value) is dict else value
    if type(value) in (dict, list, tuple):
        assert len(span.parts) == len(parts)
        for part, inner in zip(parts, span.parts, strict=True):
            assert span.start <= inner.start < inner.end <= span.end
            check(data, part, inner, protocol)


@given(value=VALUES, protocol=st.integers(1, 5))
def test_each_range_is_the_pickle_of_its_value(value: Any, protocol: int) -> None:
    data = dumped(value, protocol, memo=False)
    span = spans_of(data)
    assert span is not None
    check(data, value, span, protocol)


@given(value=VALUES, protocol=st.integers(1, 5))
def test_with_a_memo_the_parts_are_as_many(value: Any, protocol: int) -> None:
    def same(value: Any, span: PickleSpan) -> None:
        if type(value) in (list, tuple, dict) and span.parts:
            parts = [part for pair in value.items() for part in pair] if type(value) is dict else value
            assert len(span.parts) == len(parts)
            for part, inner in zip(parts, span.parts, strict=True):
                same(part, inner)

    span = spans_of(dumped(value, protocol, memo=True))
    assert span is not None
    same(value, span)


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    span = spans_of(data)
    assert span is None or 0 <= span.start <= span.end <= len(data)


def test_the_arguments_of_a_call() -> None:
    data = request(name("app", "f"), 7, "seven", [1, (2, 3)], rref(5), tensor(1))
    span = spans_of(data)
    assert span is not None
    arguments = span.part(1, 1)
    assert arguments is not None
    assert len(arguments.parts) == 5
    told = [data[one.start : one.end] for one in arguments.parts]
    assert [pickle.loads(b"\x80\x04" + one + b".") for one in told[:3]] == [7, "seven", [1, (2, 3)]]
    assert b"_py_rref_receiver" in told[3]
    assert b"_tensor_receiver" in told[4]
    assert span.part(1, 9) is None
    assert span.part(1, 1, 0, 0) is None


def test_pickles_of_script_calls() -> None:
    seen = 0
    with opened(recorded("basic_chain.pcap")) as capture:
        for record in capture.records:
            payload = record.rpc.message.payload
            for envelope in record.rpc.envelopes:
                payload = payload[: -8 - int.from_bytes(payload[-8:], "big")]
                del envelope
            if payload[:2] == b"\x80\x02":
                try:
                    value = read_jit(payload)
                except ValueError:
                    continue
                span = spans_of(payload)
                if type(value) is tuple:
                    assert span is not None
                    assert len(span.parts) == len(value)
                    seen += 1
    assert seen


@pytest.mark.parametrize(
    "data", [b"", b"(", b"\x80\x04K\x01", b"N0.", b"R.", b"a.", b"K\x01" * MAX_OPCODES + b"."]
)
def test_what_is_not_told(data: bytes) -> None:
    assert spans_of(data) is None
