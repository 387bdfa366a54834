"""The Python dialect: what the standard library and torch's own pickler write, damage, limits, trip wires."""

from __future__ import annotations

import array
import builtins
import collections
import datetime
import decimal
import importlib
import pickle
import pickletools
import sys
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import Limits
from rpcinspect.pickles import semantic
from rpcinspect.pickles.python import read_python_pickle, read_python_pickle_partial
from rpcinspect.pickles.tree import Buffer, Dict, Global, PickleCall
from tests.thorough import examples

from . import vectors
from .plain import plain


class Point:
    """Pickled by state."""

    def __init__(self, x: int) -> None:
        self.x = x


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: int) -> None:
        self.x = x


class Named(collections.namedtuple("Named", "a b")):
    pass


class Words(list):  # type: ignore[type-arg]
    """A list by inheritance: items come by APPENDS."""


class WithKeywords:
    def __new__(cls, *, x: int) -> WithKeywords:
        made = super().__new__(cls)
        made.x = x  # type: ignore[attr-defined]
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int]]:
        return (), {"x": self.x}  # type: ignore[attr-defined]


DATA = [
    None,
    True,
    False,
    0,
    255,
    256,
    65535,
    65536,
    -1,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 31,
    -(1 << 63),
    1 << 100,
    -(1 << 2100),
    1.5,
    float("inf"),
    "",
    "é\n\\ ' \" \x00\x1a",
    "\U0001f600\ud800",
    "x" * 300,
    (),
    (1,),
    (1, 2),
    (1, 2, 3),
    (1, 2, 3, 4),
    [],
    [1],
    [[], [1, 2]],
    {},
    {"a": 1},
    {1: {2: 3}, "x": (None,)},
    list(range(2500)),
    {str(n): n for n in range(1200)},
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", DATA, ids=lambda v: repr(v)[:30])
def test_plain_data(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    found = read_python_pickle(data)
    assert plain(found.root) == value
    assert type(plain(found.root)) is type(value)
    assert found.end == len(data)
    assert found.globals == found.calls == ()
    assert found.protocol == (protocol if protocol > 1 else 0)


@pytest.mark.parametrize("value", [b"", b"ab\xff", b"x" * 300, {1, 2}, frozenset([1]), set()], ids=repr)
def test_what_protocol_4_writes_plainly(value: Any) -> None:
    assert plain(read_python_pickle(pickle.dumps(value, 4)).root) == value
    assert plain(read_python_pickle(pickle.dumps(value, 5)).root) == value


def test_bytearray_and_buffers() -> None:
    assert read_python_pickle(pickle.dumps(bytearray(b"ab"), 5)).root == bytearray(b"ab")
    out_of_band: list[pickle.PickleBuffer] = []
    data = pickle.dumps(
        [pickle.PickleBuffer(b"ab"), pickle.PickleBuffer(bytearray(b"c"))],
        5,
        buffer_callback=out_of_band.append,
    )
    first, second = read_python_pickle(data).root
    assert (type(first), first.index) == (Buffer, 0)
    assert (type(second), second.index) == (Buffer, 1)


HERE = __name__


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1), ("object", f"{HERE}.Point", {"x": 1})),
        (Slotted(1), ("object", f"{HERE}.Slotted", (None, {"x": 1}))),
        (Named(1, 2), ("call", f"{HERE}.Named", (1, 2))),
        (Words([1, 2]), ("call", f"{HERE}.Words", (), [1, 2])),
        (collections.OrderedDict(a=1), ("call", "collections.OrderedDict", (), {"a": 1})),
        (collections.deque([1], 3), ("call", "collections.deque", ((), 3), [1])),
        (decimal.Decimal("1.5"), ("call", "decimal.Decimal", ("1.5",))),
        (Point, f"{HERE}.Point"),
        (time.perf_counter, "time.perf_counter"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_objects(value: Any, expected: Any, protocol: int) -> None:
    assert plain(read_python_pickle(pickle.dumps(value, protocol)).root) == expected


@pytest.mark.parametrize("protocol", [0, 1])
def test_objects_of_the_old_protocols(protocol: int) -> None:
    data = pickle.dumps(Point(1), protocol)
    found = read_python_pickle(data)
    assert plain(found.root) == ("object", "copyreg._reconstructor", {"x": 1})
    assert [str(name) for name in found.globals] == [
        "copyreg._reconstructor",
        f"{HERE}.Point",
        "builtins.object",
    ]


def test_keyword_arguments_for_new() -> None:
    node = read_python_pickle(pickle.dumps(WithKeywords(x=5), 4)).root
    assert (node.how, str(node.function), node.args) == ("newobj_ex", f"{HERE}.WithKeywords", ())
    assert plain(node.kwargs) == {"x": 5}


@pytest.mark.parametrize("protocol", range(6))
def test_cycles(protocol: int) -> None:
    knot: list[Any] = []
    knot.append({"self": knot})
    root = read_python_pickle(pickle.dumps(knot, protocol)).root
    assert root[0].get("self") is root
    point = Point(0)
    point.x = point  # type: ignore[assignment]
    root = read_python_pickle(pickle.dumps(point, protocol)).root
    assert root.state.get("x") is root


def test_a_tuple_in_its_own_list() -> None:
    """The pickler drops the half-built tuple with POP_MARK or POPs and takes the memoised one."""
    for width in (1, 5):
        inner: list[Any] = []
        knot = (inner, *range(width - 1))
        inner.append(knot)
        for protocol in range(6):
            root = read_python_pickle(pickle.dumps(knot, protocol)).root
            assert root[0][0] is root


def test_shared_objects_are_one() -> None:
    shared = [1]
    first, second = read_python_pickle(pickle.dumps([shared, shared])).root
    assert first is second


def test_a_call_of_the_wire() -> None:
    found = read_python_pickle(vectors.CALL)
    assert [str(name) for name in found.globals] == [
        "torch.distributed.rpc.internal.PythonUDF",
        "__mp_main__.fwd",
        "builtins.getattr",
        "torch.distributed.rpc.internal._InternalRPCPickler",
    ]
    assert [call.how for call in found.calls] == ["reduce"] * 4 + ["newobj"]
    assert found.calls[-1] is found.root
    assert (found.protocol, found.end, found.error) == (4, len(vectors.CALL), None)


def test_what_torch_pickles_for_rpc() -> None:
    torch = pytest.importorskip("torch")
    internal = pytest.importorskip("torch.distributed.rpc.internal")
    tensor = torch.ones(2)
    parameter = torch.nn.Parameter(torch.zeros(1))
    udf = internal.PythonUDF(Point, (tensor, [tensor], parameter), {"alpha": 2})
    data, tensors = internal._internal_rpc_pickler.serialize(udf)
    found = semantic.python_udf(read_python_pickle(data).root)
    assert found is not None
    assert (found.func.name, plain(found.kwargs)) == ("Point", {"alpha": 2})
    first, (second,), third = found.args
    assert semantic.tensor_index(first) == semantic.tensor_index(second) == 0
    assert str(third.function) == "torch._utils._rebuild_parameter"
    assert semantic.tensor_index(third.args[0]) == 1
    assert len(tensors) == 2


def test_bytes_after_stop_are_left_alone() -> None:
    assert read_python_pickle(b"\x80\x04N.rest").end == 4


@pytest.mark.parametrize(
    ("data", "reason", "offset"),
    [
        (b"", "ends before STOP", 0),
        (b"\x80\x06N.", "protocol 6", 0),
        (b"\x80\x04\xffN.", "no opcode 0xff", 2),
        (b"\x80\x04h\x07.", "memo entry 7 was never written", 2),
        (b"\x80\x04R.", "0x52 lacks operands", 2),
        (b"\x80\x04\x8c\x05ab", "ends before STOP", 9),
        (b"\x80\x04NN\x93.", "a name to import is a NoneType", 4),
        (b"\x80\x04}(N\x75.", "a key without a value", 5),
        (b"\x80\x04\x8c\x01\xff.", "0x8c: 'utf-8' codec", 2),
        (b"\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00N.", "a frame of 255 bytes, 2 are left", 2),
        (b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00NM\x01\x01.", "crosses the end of its frame", 13),
        (b"\x80\x02\x82\x00.", "extension code 0", 2),
        (b"cos\nsystem", "a line of text has no end", 0),
        (b"\x8b\xff\xff\xff\xff.", "-1 bytes are announced", 5),
    ],
)
def test_damage_is_named(data: bytes, reason: str, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        read_python_pickle(data)
    assert reason in caught.value.reason
    assert (caught.value.layer, caught.value.offset) == ("pickle", offset)


def test_a_broken_tail_does_not_hide_the_head() -> None:
    head = b"\x80\x04cos\nsystem\n\x8c\x02id\x85R"
    found = read_python_pickle_partial(head + b"\xff\xff")
    assert found.globals == (Global("os", "system"),)
    assert [call.args for call in found.calls] == [("id",)]
    assert found.error is not None
    assert found.end == len(head)
    assert found.root is None


def test_dropped_values_are_still_told() -> None:
    found = read_python_pickle(b"cos\nsystem\n(Vid\ntR0N.")
    assert found.root is None
    assert found.globals == (Global("os", "system"),)
    assert len(found.calls) == 1


@pytest.mark.parametrize("name", vectors.PYTHON)
def test_cut_at_every_length(name: str) -> None:
    data = vectors.PYTHON[name]
    whole = read_python_pickle(data)
    for n in range(len(data)):
        with pytest.raises(DecodeError):
            read_python_pickle(data[:n])
        found = read_python_pickle_partial(data[:n])
        assert found.globals == whole.globals[: len(found.globals)]
        assert found.end <= n + 255


def test_cut_pickles_of_every_protocol() -> None:
    value = [None, True, 1, 70000, 1 << 70, 1.5, "a", b"b", (1, 2), {"k": {1}}, Point(3), bytearray(b"x")]
    for protocol in range(6):
        data = pickle.dumps(value, protocol)
        for n in range(len(data)):
            with pytest.raises(DecodeError):
                read_python_pickle(data[:n])


EVERY_OPCODE = [ord(op.code) for op in pickletools.opcodes]


@settings(max_examples=examples(400), deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(st.sampled_from([*EVERY_OPCODE, 0, 1, 10, 48, 49]), max_size=80).map(bytes),
    )
)
def test_hostile_bytes(data: bytes) -> None:
    found = read_python_pickle_partial(data)
    if found.error is not None:
        assert found.error.layer == "pickle"


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, len(vectors.CALL) - 1), st.integers(1, 255))
def test_flipped_bytes(at: int, flip: int) -> None:
    data = bytearray(vectors.CALL)
    data[at] ^= flip
    with suppress(DecodeError):
        read_python_pickle(bytes(data))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
        ),
        lambda inner: st.one_of(
            st.lists(inner),
            st.lists(inner).map(tuple),
            st.dictionaries(st.one_of(st.text(), st.integers()), inner),
        ),
        max_leaves=25,
    ),
    st.integers(3, 5),
)
def test_round_trip_of_plain_data(value: Any, protocol: int) -> None:
    assert plain(read_python_pickle(pickle.dumps(value, protocol)).root) == value


def test_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    pickles = [
        vectors.CALL,
        vectors.FAILURE,
        b"\x80\x04cnowhere\nf\n(Va\ntR.",
        b"(inowhere\nC\n.",
        b"(cnowhere\nC\no.",
        b"\x80\x02\x82\x05.",
    ]

    def trip(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"imported {args[:1]}")

    with monkeypatch.context() as wires:
        wires.setattr(importlib, "import_module", trip)
        wires.setattr(pickle, "loads", trip)
        wires.setattr(builtins, "__import__", trip)
        for data in pickles:
            read_python_pickle(data)
    assert "nowhere" not in sys.modules


def test_limits() -> None:
    with pytest.raises(LimitExceeded, match="pickle_opcodes = 10"):
        read_python_pickle(b"N" * 20, Limits(pickle_opcodes=10))
    with pytest.raises(LimitExceeded, match="pickle_stack"):
        read_python_pickle(b"(" * 20, Limits(pickle_stack=10))
    with pytest.raises(LimitExceeded, match="pickle_memo"):
        read_python_pickle(b"N" + b"\x94" * 20 + b".", Limits(pickle_memo=10))
    with pytest.raises(LimitExceeded, match="pickle_memo"):
        read_python_pickle(b"N" + b"p1\np2\np3\n.", Limits(pickle_memo=2))
    for data in (b"X\x05\x00\x00\x00abcde.", b"B\x05\x00\x00\x00abcde."):
        with pytest.raises(LimitExceeded, match="pickle_string_bytes"):
            read_python_pickle(data, Limits(pickle_string_bytes=4))


def test_bombs_stay_small() -> None:
    start = time.process_time()
    read_python_pickle(b"N" + b"q\x00h\x00\x86" * 60_000 + b".")
    read_python_pickle(b"(" * 100_000 + b"t" * 100_000 + b".")
    with pytest.raises(DecodeError, match="memo index 4294967295 in a pickle of 7 bytes"):
        read_python_pickle(b"Nr\xff\xff\xff\xff.")
    with pytest.raises(DecodeError, match="digits"):
        read_python_pickle(b"L" + b"9" * 1_000_000 + b"L\n.")
    with pytest.raises(DecodeError, match="announced"):
        read_python_pickle(b"\x96\xff\xff\xff\x7f\x00\x00\x00\x00ab.")
    assert time.process_time() - start < 15


def test_changes_to_imported_objects_are_calls() -> None:
    """BUILD, APPENDS and SETITEMS on what was imported would change the running program."""
    for change in (b"}b", b"]b", b"Vx\na", b"(Vx\ne", b"Vk\nVv\ns", b"(Vk\nVv\nu"):
        root = read_python_pickle(b"csys\npath\n" + change + b".").root
        assert type(root) is PickleCall
        assert (root.how, root.function) == ("change", Global("sys", "path"))


def test_numpy_and_others() -> None:
    numpy = pytest.importorskip("numpy")
    for value in (numpy.arange(6).reshape(2, 3), array.array("i", [1]), datetime.date(2020, 1, 2)):
        for protocol in range(6):
            assert type(read_python_pickle(pickle.dumps(value, protocol)).root) is PickleCall


def test_an_empty_dict_is_a_dict() -> None:
    assert type(read_python_pickle(b"}.").root) is Dict
