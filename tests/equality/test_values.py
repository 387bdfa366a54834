"""Captured values: equal by structure and bits, the first path where they are not."""

from __future__ import annotations

import collections
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.equality import values
from rpcinspect.equality.difference import Difference
from rpcinspect.equality.ids import CONTEXT, IdMap
from rpcinspect.equality.rules import Rules
from rpcinspect.equality.values import Matching, compare_values
from rpcinspect.pickles.tree import Buffer, Dict, Extension, Global, PersistentRef, PickleCall, Set, Value
from rpcinspect.rpc.types import pack_id
from tests.equality.builders import tree
from tests.equality.mirrors import mirrored, mirrored_ids, mirrored_rules

PICKLER = PickleCall(
    Global("builtins", "getattr"), (Global("torch.distributed.rpc.internal", "_InternalRPCPickler"), "")
)


def diff(one: Value, other: Value, rules: Rules | None = None, ids: IdMap | None = None) -> Difference | None:
    """Both ways round."""
    rules, ids = rules or Rules(), IdMap() if ids is None else ids
    back = compare_values(other, one, "v", Matching(mirrored_rules(rules), mirrored_ids(ids)))
    found = compare_values(one, other, "v", Matching(rules, ids))
    assert (None if back is None else mirrored(back)) == found
    return found


def tensor(index: int) -> PickleCall:
    return PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (index,))


def rref(owner: int, rref_local: int, fork_local: int) -> PickleCall:
    args = (owner, 0, rref_local, 0, fork_local, 0, "Tensor")
    return PickleCall(Global("torch.distributed.rpc", "rref"), args)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
        | st.frozensets(st.integers() | st.text(max_size=3), max_size=4)
    ),
    max_leaves=12,
)


def bits(value: Any) -> Any:
    """What must be the same: types, and floats by their bits."""
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    if isinstance(value, (list, tuple)):
        return (type(value), [bits(item) for item in value])
    if isinstance(value, dict):
        return (dict, sorted(((repr(bits(k)), repr(bits(v))) for k, v in value.items())))
    if isinstance(value, frozenset):
        return (frozenset, sorted(repr(bits(item)) for item in value))
    return (type(value), value)


@given(one=PLAIN, other=PLAIN)
def test_equal_is_what_python_calls_equal_by_bits(one: Any, other: Any) -> None:
    assert diff(tree(one), tree(one, 5)) is None
    found = diff(tree(one), tree(other))
    assert (found is None) == (bits(one) == bits(other))


@pytest.mark.parametrize(
    ("one", "other", "path", "shown"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, "v['a'][1]", (2, 3)),
        ([1], [1, 2], "v", ("[1]", "[1, 2]")),
        ({"a": 1}, {"b": 1}, "v['a']", (1, None)),
        ({}, {"b": 1}, "v['b']", (None, 1)),
        (1, 1.0, "v", (1, 1.0)),
        (1, True, "v", (1, True)),
        ("x", b"x", "v", ("x", "b'x'")),
        ({1, 2}, {1, 3}, "v", (2, 3)),
        ({1}, frozenset({1}), "v", ("{1}", "frozenset({1})")),
        (range(3), range(4), "v.range[1]", (3, 4)),
        (len, max, "v", ("len", "max")),
    ],
)
def test_the_first_difference(one: Any, other: Any, path: str, shown: tuple[Any, Any]) -> None:
    found = diff(tree(one), tree(other))
    assert found is not None
    assert (found.code, found.path, found.a_value, found.b_value) == ("value", path, *shown)


def test_order_of_dicts_and_sets_does_not_count() -> None:
    assert diff(tree({"a": 1, "b": 2}), tree({"b": 2, "a": 1})) is None
    assert diff(Set([1, 2]), Set([2, 1])) is None
    one, other = collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)
    assert diff(tree(one), tree(one)) is None
    found = diff(tree(one), tree(other))  # as in Python
    assert found is not None
    assert found.text == "the keys, or their order"


def test_the_last_value_of_a_key_counts() -> None:
    assert diff(Dict([("a", 1), ("a", 2)]), Dict([("a", 2)])) is None


@pytest.mark.parametrize(
    ("one", "other", "code"),
    [
        (0.0, -0.0, "zero-sign"),
        (math.nan, struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0], "nan-payload"),
        (1.0, 1.0000000000000002, "value"),
        (1.0, math.nan, "value"),
    ],
)
def test_floats(one: float, other: float, code: str) -> None:
    assert diff(one, one) is None
    found = diff([one], [other])
    assert found is not None
    assert (found.code, found.path) == (code, "v[0]")
    assert found.a_bits != found.b_bits


def test_a_tolerance_covers_floats_but_does_not_end_the_search() -> None:
    rules = Rules(rtol=1e-3)
    found = diff([1.0, 1], [1.0001, 1], rules)
    assert found is not None
    assert found.tolerated
    found = diff([1.0, 1], [1.0001, 2], rules)
    assert found is not None
    assert (found.path, found.tolerated) == ("v[1]", False)


def test_the_main_module_has_two_names() -> None:
    assert diff(Global("__main__", "f"), Global("__mp_main__", "f")) is None
    assert diff(Global("__main__", "f"), Global("__mp_main__", "g")) is not None


def test_tensors_are_handed_on_in_pairs() -> None:
    matching = Matching(Rules(), IdMap())
    one, other = Dict([("x", tensor(0)), ("y", tensor(1))]), Dict([("y", tensor(0)), ("x", tensor(1))])
    assert compare_values(one, other, "v", matching) is None
    assert matching.tensor_pairs == {(0, 1): "v['x']", (1, 0): "v['y']"}
    assert diff([tensor(0)], [None]) is not None
    assert (
        diff(PickleCall(PICKLER, (0,)), PickleCall(PICKLER, (1,))) is not None
    )  # looks like one, and is none


def test_rrefs_are_equal_as_their_ids_are() -> None:
    ids = IdMap()
    assert diff([rref(1, 5, 6)], [rref(1, 8, 9)], ids=ids) is None
    assert diff([rref(1, 5, 7)], [rref(1, 8, 10)], ids=ids) is None
    found = diff([rref(1, 5, 6)], [rref(1, 7, 9)], ids=ids)
    assert found is not None
    assert found.a_value == "RRef(0:5 fork 0:6 owner 1)"
    assert diff(Set([rref(1, 20, 21), rref(1, 22, 23)]), Set([rref(1, 30, 31)])) is not None


def remote_module(device: str, rref_local: int, fork_local: int) -> PickleCall:
    """As `_remote_module_reducer` of torch writes one."""
    rref = (1, 0, rref_local, 0, fork_local, 0, "PyObject")
    module = "torch.distributed.nn.api.remote_module"
    return PickleCall(Global(module, "_remote_module_receiver"), ("w1", device, False, False, [], rref))


def test_remote_modules_are_equal_as_their_rrefs_are() -> None:
    ids = IdMap()
    assert diff([remote_module("cpu", 5, 6)], [remote_module("cpu", 8, 9)], ids=ids) is None
    assert diff(rref(1, 5, 7), rref(1, 8, 10), ids=ids) is None
    found = diff([remote_module("cpu", 5, 6)], [remote_module("cpu", 7, 9)], ids=ids)
    assert found is not None
    assert found.path == "v[0].module_rref"
    found = diff([remote_module("cpu", 5, 6)], [remote_module("cuda:0", 8, 9)], ids=ids)
    assert found is not None
    assert (found.path, found.a_value, found.b_value) == ("v[0].RemoteModule[1]", "cpu", "cuda:0")
    renamed = Rules(renames={"w1": "ps"})
    other = PickleCall(remote_module("cpu", 5, 6).function, ("ps", *remote_module("cpu", 5, 6).args[1:]))
    assert diff(remote_module("cpu", 5, 6), other, renamed) is None
    assert diff(Set([remote_module("cpu", 5, 6)]), Set([remote_module("cpu", 8, 9)])) is None


def test_ids_of_contexts_among_the_values() -> None:
    ids = IdMap()
    far = pack_id(3, 1), pack_id(3, 4)
    assert ids.same(CONTEXT, 5, 9)
    assert ids.same(CONTEXT, *far)
    assert diff(*far, ids=ids) is None
    assert diff(5, 9, ids=ids) is not None  # may be any number
    matching = Matching(Rules(), ids, contexts=frozenset({5}))
    assert compare_values([5], [9], "v", matching) is None
    assert compare_values([5], [8], "v", matching) is not None
    matching.contexts = None
    assert compare_values([5], [9], "v", matching) is None


def test_names_of_workers() -> None:
    rules = Rules(renames={"w0": "ps"})
    assert diff(["w0", "w0/cuda:0"], ["ps", "ps/cuda:0"], rules) is None
    assert diff(tree({"w0": 1}), tree({"ps": 1}), rules) is None
    assert diff("w0 is here", "ps is here", rules) is not None
    info = [PickleCall(Global("torch._C._distributed_rpc", "WorkerInfo"), ()) for _ in range(2)]
    for node, name, number in zip(info, ("w0", "ps"), (0, 4), strict=True):
        node.has_state, node.state = True, (name, number)
    assert diff(*info, rules) is None
    assert diff(*info) is not None


def test_devices() -> None:
    one, other = (PickleCall(Global("torch", "device"), ("cuda", index)) for index in (0, 1))
    assert diff(one, other) is not None
    ignored = Rules(ignore=frozenset({"device"}))
    assert diff(one, other, ignored) is None
    assert diff(["cpu", "w0/cpu"], ["cuda:0", "w0/cuda:1"], ignored) is None
    assert diff("cpu", "cuda:0") is not None
    assert diff("cpu", "cups", ignored) is not None
    assert diff("w0/cpu", "w1/cpu", ignored) is not None
    assert diff("w0/cpu", "cpu", ignored) is not None


def test_numpy_arrays() -> None:
    np = pytest.importorskip("numpy")
    one = np.arange(4, dtype=np.float32)
    other = one.copy()
    other[2] = 9
    assert diff(tree(one), tree(one, 5)) is None
    found = diff(tree(one), tree(other))
    assert found is not None
    assert (found.code, found.path, found.b_value) == ("value", "v.elements[2]", 9.0)
    assert diff(tree(one), tree(one.astype("<f8"))) is not None
    square = one.reshape(2, 2)
    assert diff(tree(square), tree(np.asfortranarray(square))) is not None
    shape = diff(tree(one), tree(one.reshape(2, 2)))
    assert shape is not None
    assert shape.path == "v.shape"
    assert diff(tree(np.float32(1)), tree(np.float32(2))) is not None
    assert diff(tree(np.float32(1)), tree(np.float32(1))) is None


class Point:
    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y


def test_objects_by_their_state() -> None:
    assert diff(tree(Point(1, 2)), tree(Point(1, 2))) is None
    found = diff(tree(Point(1, 2)), tree(Point(1, 3)))
    assert found is not None
    assert found.path == "v['y']"


def test_names_with_halves_of_characters() -> None:
    one, other = (PickleCall(Global("m", name), (value,)) for name, value in (("C\ud800", 1), ("C\ud800", 2)))
    found = diff(one, other)
    assert found is not None
    assert found.path == "v.C\\ud800[0]"
    found = diff(one, 5)
    assert found is not None
    assert found.text == "int and m.C\\ud800"
    json.dumps(found.as_json(), ensure_ascii=False).encode()


def test_tagged_values_of_the_jit() -> None:
    tagged = PickleCall(Global("torch.jit._pickle", "restore_type_tag"), ([1, 2], "List[int]"))
    assert diff(tagged, [1, 2]) is None
    assert diff(tagged, [1, 3]) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PersistentRef(("a", 1)), PersistentRef(("a", 2))),
        (Extension(1), Extension(2)),
        (Buffer(0), Buffer(1)),
        (PickleCall(Global("m", "f"), (1,)), PickleCall(Global("m", "g"), (1,))),
        (PickleCall(Global("m", "f"), (), items=[1]), PickleCall(Global("m", "f"), (), items=[2])),
        (PickleCall(Global("m", "f"), (), pairs=[(1, 2)]), PickleCall(Global("m", "f"), ())),
        (PickleCall(Global("m", "f"), (), Dict([("a", 1)])), PickleCall(Global("m", "f"), ())),
        (PickleCall(Global("m", "f"), (), has_state=True), PickleCall(Global("m", "f"), ())),
        (PickleCall(Global("m", "f"), (), how="change"), PickleCall(Global("m", "f"), ())),
    ],
)
def test_every_node(one: Value, other: Value) -> None:
    assert diff(one, one) is None
    assert diff(one, other) is not None


def test_cycles_and_depth_end() -> None:
    one: list[Value] = [1]
    one.append(one)
    other: list[Value] = [1]
    other.append(other)
    assert diff(one, other) is None
    deep_a: Value = 1
    deep_b: Value = 2
    for _ in range(20_000):
        deep_a, deep_b = (deep_a,), (deep_b,)
    found = diff(deep_a, deep_b)
    assert found is not None
    assert found.a_value == 1
    wide: Value = ()
    for _ in range(60):  # 2^60 leaves, 60 objects
        wide = (wide, wide)
    twin: Value = ()
    for _ in range(60):
        twin = (twin, twin)
    assert diff(wide, twin) is None


def test_too_many_values_are_not_called_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_PAIRS", 10)
    found = diff(list(range(20)), list(range(20)))
    assert found is not None
    assert found.code == "unknown"


def test_joined_names_of_workers() -> None:
    """As the agents' own calls have them: sorted, so that a renamed worker may stand elsewhere."""

    def same(a: str, b: str, *, joined: bool = True) -> bool:
        rules = Rules(renames={"w2": "ps"})
        matching = Matching(rules, IdMap(), joined_names=joined)
        return compare_values(a, b, "v", matching) is None

    assert same("w1w2w30", "psw1w30")
    assert not same("w1w2w30", "psw1w30", joined=False)
    assert not same("w1w2w30", "psw1w31")
    assert not same("w1w2w2", "psw1")
    assert not same("w1", "psw1")
