"""Values as text: the usual ones, rpc's own, hostile ones."""

from __future__ import annotations

import collections
import decimal
import pickle
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.pickles.jit import read_jit
from rpcinspect.pickles.python import read_python_pickle, read_python_pickle_partial
from rpcinspect.pickles.render import render, render_args
from rpcinspect.pickles.tree import Buffer, Dict, Extension, Global, PersistentRef, PickleCall, Set
from tests.thorough import examples

from . import vectors


class Box:
    """Pickled by state."""

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)


def shown(value: Any, protocol: int = 4) -> str:
    return render(read_python_pickle(pickle.dumps(value, protocol)).root)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -7,
        1.5,
        float("inf"),
        "a'b",
        "",
        b"ab\x00",
        (),
        (1,),
        (1, "x"),
        [],
        [1, [2]],
        {},
        {"a": 1, 2: ()},
    ],
    ids=repr,
)
def test_plain_values_by_repr(value: Any) -> None:
    assert shown(value) == repr(value)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Set([1, 2]), "{1, 2}"),
        (Set(), "set()"),
        (Set([1], frozen=True), "frozenset({1})"),
        (Global("pkg.mod", "Cls.method"), "pkg.mod.Cls.method"),
        (Global("builtins", "KeyError"), "KeyError"),
        (PickleCall(Global("pkg", "Cls"), (1, "a")), "pkg.Cls(1, 'a')"),
        (
            PickleCall(Global("pkg", "Cls"), (), how="newobj", has_state=True, state=Dict([("x", 1)])),
            "pkg.Cls{'x': 1}",
        ),
        (PickleCall(Global("pkg", "Cls"), (2,), has_state=True, state=None), "pkg.Cls(2){None}"),
        (
            PickleCall(
                Global("pkg", "Cls"), (), how="newobj", has_state=True, state=(None, Dict([("s", 1)]))
            ),
            "pkg.Cls{'s': 1}",
        ),
        (PickleCall(Global("pkg", "Cls"), (1,), Dict([("k", 2)]), "newobj_ex"), "pkg.Cls(1, k=2)"),
        (PickleCall(Global("pkg", "Cls"), (), Dict([("k", 2)]), "newobj_ex"), "pkg.Cls(k=2)"),
        (PickleCall(Global("builtins", "getattr"), (Global("pkg", "Cls"), "make")), "pkg.Cls.make"),
        (PickleCall(Global("builtins", "complex"), (0.0, 1.0)), "complex(0.0, 1.0)"),
        (PickleCall(None, ("os", "f"), how="stack_global"), "<import>('os', 'f')"),
        (PickleCall(Global("torch", "device"), ("cuda:0",)), "device('cuda:0')"),
        (PersistentRef("x"), "persistent('x')"),
        (Extension(5), "extension#5"),
        (Buffer(1), "buffer#1"),
        (bytearray(b"ab"), "bytearray(b'ab')"),
    ],
)
def test_nodes(node: Any, text: str) -> None:
    assert render(node) == text


def test_a_name_is_looked_at_as_far_as_it_is_shown() -> None:
    """A hostile capture has 60,000 objects with a name of 300,000 letters."""
    node = PickleCall(Global("builtins", "getattr"), (Global("pkg", "Cls"), "a" * 300 + " "))
    assert render(node, max_chars=20) == "pkg.Cls." + "a" * 11 + "…"
    assert render(node).startswith("getattr(pkg.Cls, 'aaa")
    assert render(node, max_chars=0) == "…"


def test_containers_and_exceptions() -> None:
    assert shown(collections.OrderedDict(a=1)) == "collections.OrderedDict({'a': 1})"
    assert shown(collections.defaultdict(list, a=[1])) == "collections.defaultdict(list, {'a': [1]})"
    assert shown(KeyError("k")) == "KeyError('k')"
    assert shown(decimal.Decimal("1.5")) == "decimal.Decimal('1.5')"
    assert shown(Box(x=1)) == f"{__name__}.Box{{'x': 1}}"


def test_python_2_names_in_old_protocols() -> None:
    assert shown(KeyError("k"), 2) == "KeyError('k')"
    assert shown(b"\xff\x00", 2) == "b'\\xff\\x00'"
    assert shown({1}, 2) == "set([1])"


def test_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(6, dtype="float32").reshape(2, 3)
    for protocol in (2, 4, 5):
        text = shown(array, protocol)
        assert text.startswith("numpy.ndarray(shape=(2, 3), dtype=dtype('<f4'), b"), text
    assert shown(numpy.float64(1.5)) == "numpy.float64(1.5)"
    assert shown(numpy.int16(-3)) == "numpy.int16(-3)"
    assert shown(numpy.dtype(">i4")) == "dtype('>i4')"


def test_a_call_of_the_wire() -> None:
    root = read_python_pickle(vectors.CALL).root
    assert render_args(root, ["tensor#0[2] float32"]) == (
        "__mp_main__.fwd",
        ["RRef(0:0 fork 0:2 owner 1)", "tensor#0[2] float32"],
        {},
    )
    assert render_args(root) == ("__mp_main__.fwd", ["RRef(0:0 fork 0:2 owner 1)", "tensor#0"], {})
    assert render_args(None) is None


def test_keyword_arguments() -> None:
    udf = Global("torch.distributed.rpc.internal", "PythonUDF")
    root = PickleCall(udf, (Global("m", "f"), (1,), Dict([("k", [2])])), how="newobj")
    assert render_args(root) == ("m.f", ["1"], {"k": "[2]"})


def test_jit_values() -> None:
    assert render(read_jit(vectors.SCRIPT_CALL), ["T0", "T1"]) == (
        "(T0, 3, 'key', [1, 2], {'a': T0, 'b': T1}, None, False, '__torch__.__mp_main__.sfun')"
    )


def test_parameters() -> None:
    tensor = PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (0,))
    node = PickleCall(
        Global("torch._utils", "_rebuild_parameter"),
        (tensor, True, PickleCall(Global("collections", "OrderedDict"), ())),
    )
    assert render(node, ["tensor#0[3] float32 grad"]) == "Parameter(tensor#0[3] float32 grad)"


def test_a_tensor_that_is_not_there() -> None:
    build = Global("torch.jit._pickle", "build_tensor_from_id")
    assert render(PickleCall(build, (5,)), ["T0"]) == "tensor#5"
    assert render(PickleCall(build, (-1,)), ["T0"]) == "torch.jit._pickle.build_tensor_from_id(-1)"


def test_cycles() -> None:
    knot: list[Any] = [1]
    knot.append(knot)
    assert render(knot) == "[1, <cycle>]"
    box = Box()
    box.me = box  # type: ignore[attr-defined]
    assert shown(box) == f"{__name__}.Box{{'me': <cycle>}}"
    shared = [1]
    assert render([shared, shared]) == "[[1], [1]]"


def test_long_values_are_shortened() -> None:
    assert render(b"x" * 100) == f"{b'x' * 32!r}… (100 bytes)"
    assert render(list(range(1000))).endswith("99, … (1000 items)]")
    assert render("a" * 5000).endswith("a'… (5000 characters)")
    assert render(1 << 20_000) == "<integer of 20001 bits>"
    text = render(["a" * 900] * 90, max_chars=500)
    assert len(text) == 500
    assert text.endswith("…")


@pytest.mark.parametrize(
    "value",
    ["\x1b[31m", "\x9b31m", "\u202eabc", "\u2066", "\ud800", "\r\n", "\u2028", "\ufeff", "\x7f"],
    ids=ascii,
)
def test_control_characters_are_escaped_everywhere(value: str) -> None:
    nodes = [
        value,
        Global(value, value),
        PickleCall(Global("m", value), (value,), Dict([(value, 1)])),
        Dict([(value, value)]),
    ]
    udf = PickleCall(
        Global("torch.distributed.rpc.internal", "PythonUDF"),
        (Global("m", value), (value,), Dict([(value, value)])),
    )
    args = render_args(udf)
    assert args is not None
    texts = [*map(render, nodes), args[0], *args[1], *args[2], *args[2].values()]
    for text in texts:
        assert text.isprintable(), ascii(text)
        text.encode()


def test_bombs_stay_small() -> None:
    start = time.process_time()
    wide: Any = None
    for _ in range(100):
        wide = (wide, wide)
    assert len(render(wide)) <= 4000
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    assert render(deep).startswith("[[[")
    assert "…" in render(deep)
    nested = PickleCall(Global("m", "f"), ())
    for _ in range(50_000):
        nested = PickleCall(nested, (nested,))
    assert len(render(nested)) <= 4000
    udf = PickleCall(Global("torch.distributed.rpc.internal", "PythonUDF"), (1, (wide,) * 100_000, Dict()))
    args = render_args(udf)
    assert args is not None
    assert len(args[1]) < 100
    assert time.process_time() - start < 15


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.sampled_from(list(b"(.NRbcJKM\x8aGXQ)t\x85\x86\x87]lae}duqrhj\x00\x01\x02\n\x81\x92\x93\x94\x8f")),
        max_size=60,
    )
)
def test_whatever_is_read_can_be_rendered(data: list[int]) -> None:
    found = read_python_pickle_partial(bytes(data))
    for node in (found.root, *found.calls):
        assert render(node, ["T"]).isprintable()
