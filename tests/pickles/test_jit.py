"""The C++ Pickler's dialect, read: vectors of the wire, damage, limits."""

from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import Limits
from rpcinspect.pickles.jit import Forms, read_jit
from rpcinspect.pickles.tree import Dict, Global, PersistentRef, PickleCall
from tests.thorough import examples

from . import vectors
from .plain import plain, read_with_forms

TENSOR = Global("torch.jit._pickle", "build_tensor_from_id")
TAG = Global("torch.jit._pickle", "restore_type_tag")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (vectors.CLEANUP, 0),
        (vectors.FETCH, ((0, 3), 1)),
        (vectors.USER_DELETE, ((0, 3), (0, 5))),
        (vectors.CHILD_ACCEPT, ((1, 4),)),
        (
            vectors.FORWARD_AUTOGRAD,
            (0x102, 0, 0, 0, ("call", str(TAG), ({"cpu": "cpu"}, "Dict[str, str]"))),
        ),
        (vectors.BACKWARD, (("call", str(TENSOR), (0,)), 1 << 48, 1, False)),
        (vectors.PROFILING, (0x102, ("call", str(TAG), ([1, False, False], "List[Any]")), (1, 1 << 48))),
    ],
    ids=["cleanup", "fetch", "delete", "accept", "forward", "backward", "profiling"],
)
def test_messages_of_the_wire(data: bytes, expected: object) -> None:
    assert plain(read_jit(data)) == expected


def test_a_tensor_list() -> None:
    root = read_jit(vectors.TENSORS)
    assert root.function == Global("torch.jit._pickle", "build_tensorlist")
    (tensor,) = root.args[0]
    storage, offset, sizes, strides, requires_grad, hooks = tensor.args
    assert type(storage) is PersistentRef
    assert storage.id == ("storage", Global("torch", "FloatStorage"), "0", "cpu", 3)
    assert (offset, sizes, strides, requires_grad) == (0, (3,), (1,), True)
    assert hooks.function == Global("collections", "OrderedDict")


def test_a_python_pickle_in_a_string_stays_bytes() -> None:
    root = read_jit(vectors.FETCH_RET)
    assert type(root[1]) is bytes
    assert root[1][:2] == b"\x80\x04"


def test_memoised_values_are_one_object() -> None:
    root = read_jit(vectors.SCRIPT_CALL)
    tagged = root[4]
    assert type(tagged.args[0]) is Dict
    assert tagged.args[0].get("a") is root[0]


@pytest.mark.parametrize(
    ("opcodes", "expected"),
    [
        (b"N", None),
        (b"K\xff", 255),
        (b"M\xff\xff", 65535),
        (b"J\xff\xff\xff\xff", -1),
        (b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80", -(1 << 63)),
        (b"\x8a\x01\xfe", -2),
        (b"G\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5),
        (b"X\x02\x00\x00\x00\xc3\xa4", "ä"),
        (b"\x8d\x02\x00\x00\x00\x00\x00\x00\x00\xff\xfe", b"\xff\xfe"),
        (b"K\x01K\x02K\x03\x87", (1, 2, 3)),
        (b")", ()),
        (b"]K\x01a", [1]),
        (b"(K\x01K\x02l", [1, 2]),
        (b"(K\x01K\x02d", {1: 2}),
        (b"](e", []),
        (b"K\x07r\x00\x01\x00\x00j\x00\x01\x00\x00\x86", (7, 7)),
        (b"c__torch__.m\nC\n)\x81}(X\x01\x00\x00\x00aK\x01ub", ("object", "__torch__.m.C", {"a": 1})),
        (b"c__torch__.m\nColour\nK\x02R", ("call", "__torch__.m.Colour", 2)),
    ],
)
def test_opcodes(opcodes: bytes, expected: object) -> None:
    assert plain(read_jit(b"\x80\x02" + opcodes + b".")) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "starts with 80 02"),
        (b"\x80\x04N.", "starts with 80 02"),
        (b"\x80\x02", "ends before STOP"),
        (b"\x80\x02.", "0 values"),
        (b"\x80\x02NN.", "2 values"),
        (b"\x80\x02(N.", "1 marks"),
        (b"\x80\x02N.N", "1 bytes follow STOP"),
        (b"\x80\x02h\x05.", "memo entry 5"),
        (b"\x80\x02q\x00N.", "lacks operands"),
        (b"\x80\x02N(N\x75.", "not a dict"),
        (b"\x80\x02}(N\x75.", "not a dict, or a key without a value"),
        (b"\x80\x02N(Ne.", "not a list"),
        (b"\x80\x02NNb.", "not an object"),
        (b"\x80\x02t.", "lacks operands"),
        (b"\x80\x02\x93.", "0x93 is not one of the C++ Pickler's"),
        (b"\x80\x02ctorch\n", "inside a global's name"),
        (b"\x80\x02c\xff\nx\n.", "not UTF-8"),
        (b"\x80\x02X\xff\xff\x00\x00ab.", "ends before STOP"),
    ],
)
def test_damage_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(reason)) as caught:
        read_jit(data)
    assert caught.value.layer == "pickle"


@pytest.mark.parametrize("name", vectors.JIT)
def test_cut_at_every_length(name: str) -> None:
    data = vectors.JIT[name]
    for n in range(len(data)):
        with pytest.raises(DecodeError):
            read_jit(data[:n])


@pytest.mark.parametrize("name", vectors.JIT)
def test_a_flipped_byte_is_a_value_or_a_decode_error(name: str) -> None:
    data = bytearray(vectors.JIT[name])
    for i in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            data[i] ^= flip
            with suppress(DecodeError):
                read_with_forms(bytes(data))
            data[i] ^= flip


ALPHABET = b"(.NRbcJKM\x8aGX\x8d\x88\x89\x81Q)t\x85\x86\x87]lae}duqrhj\x00\x01\x02a\n"


@settings(max_examples=examples(300), deadline=None)
@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(list(ALPHABET)), max_size=60).map(bytes)))
def test_hostile_bytes(tail: bytes) -> None:
    with suppress(DecodeError):
        read_with_forms(b"\x80\x02" + tail)


def test_limits() -> None:
    with pytest.raises(LimitExceeded, match="pickle_opcodes") as caught:
        read_jit(b"\x80\x02" + b"N" * 20, Limits(pickle_opcodes=10))
    assert (caught.value.limit, caught.value.bound, caught.value.value) == ("pickle_opcodes", 10, 11)
    with pytest.raises(LimitExceeded, match="pickle_stack"):
        read_jit(b"\x80\x02" + b"(" * 20, Limits(pickle_stack=10))
    with pytest.raises(LimitExceeded, match="pickle_string_bytes"):
        read_jit(b"\x80\x02X\x05\x00\x00\x00abcde.", Limits(pickle_string_bytes=4))
    puts = b"".join(b"r" + i.to_bytes(4, "little") for i in range(20))
    with pytest.raises(LimitExceeded, match="pickle_memo"):
        read_jit(b"\x80\x02N" + puts + b".", Limits(pickle_memo=10))


def test_bombs_stay_small() -> None:
    start = time.process_time()
    doubled = b"\x80\x02N" + b"q\x00h\x00\x86" * 60_000 + b"."
    assert type(read_jit(doubled)) is tuple
    nested = b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"."
    assert type(read_jit(nested)) is tuple
    assert time.process_time() - start < 15


def test_forms_say_how_and_never_what() -> None:
    value, forms = read_with_forms(vectors.USER_DELETE)
    ids = Forms(0x86, True, (Forms(), Forms()))
    assert forms == Forms(0x86, False, (ids, ids))
    assert type(value) is tuple


def test_objects_are_calls_with_state() -> None:
    node = read_jit(b"\x80\x02cm\nC\n)\x81}b.")
    assert type(node) is PickleCall
    assert (node.how, node.has_state) == ("newobj", True)
