"""Pickles of both dialects: of the same length and shape, and no value of before."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError
from rpcinspect.export.redaction.pickles import jit_string, redact_jit, redact_python
from rpcinspect.export.redaction.pseudonyms import Pseudonyms
from rpcinspect.pickles.jit import read_jit
from rpcinspect.pickles.jit_write import write_jit
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Set, children
from tests.thorough import examples

WORDS = Pseudonyms(b"key")
SECRET = st.text("SECRT", min_size=6).map(lambda text: f"{text}!")
LEAVES = st.one_of(
    SECRET,
    SECRET.map(str.encode),
    SECRET.map(lambda text: bytearray(text.encode())),
    st.integers(),
    st.floats(allow_nan=False),
    st.none(),
    st.booleans(),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(SECRET, inner, max_size=3),
        st.frozensets(SECRET, max_size=3),
    ),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    """Types, as far as they go."""
    if isinstance(value, (str, bytes, int, float, bool, type(None), bytearray)):
        return type(value).__name__, len(value) if isinstance(value, (bytes, bytearray)) else None
    return type(value).__name__, [shape(child) for child in children(value)]


@given(VALUES, st.integers(0, 5))
@settings(max_examples=examples(200))
def test_python_pickles_of_every_protocol(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    made = redact_python(data, WORDS)
    assert len(made) == len(data)
    if protocol:  # protocol 0 writes other texts with other escapes
        assert shape(read_python_pickle(made).root) == shape(read_python_pickle(data).root)
    for text in _strings(value):
        assert text not in made


def _strings(value: Any) -> set[bytes]:
    if isinstance(value, str):
        return {value.encode()}
    if isinstance(value, (bytes, bytearray)):
        return {bytes(value)}
    if isinstance(value, dict):
        return set().union(*[_strings(part) for pair in value.items() for part in pair])
    if isinstance(value, (list, tuple, frozenset)):
        return set().union(*[_strings(part) for part in value])
    return set()


def test_numbers_are_others_but_for_the_smallest() -> None:
    numbers = [0, 1, -1, 2, 200, 300, 70_000, -5, 1 << 40, -(1 << 70), 0.5, -2.25, 1.0]
    made = read_python_pickle(redact_python(pickle.dumps(numbers), WORDS)).root
    assert made[:3] == [0, 1, -1]
    assert made[-1] == 1.0
    assert all(
        new != old and (new < 0) == (old < 0) for new, old in zip(made[3:-1], numbers[3:-1], strict=True)
    )


@pytest.mark.parametrize("protocol", range(6))
def test_floats_are_others(protocol: int) -> None:
    secret = 0.987654321
    data = pickle.dumps([secret, -secret], protocol)
    made = read_python_pickle(redact_python(data, WORDS)).root
    assert [type(value) for value in made] == [float, float]
    assert secret not in made
    assert -secret not in made


def test_integers_that_are_wider_than_they_need_be() -> None:
    """No encoder writes them so, but somebody could."""
    data = b"\x80\x04M\x2a\x00."  # 42 in two bytes
    assert read_python_pickle(redact_python(data, WORDS)).root != 42
    data = b"\x80\x04\x8a\x04\x2a\x00\x00\x00."
    assert read_python_pickle(redact_python(data, WORDS)).root != 42


def test_what_loading_throws_away_is_replaced_too() -> None:
    data = b"\x80\x04\x8c\x06SECRET0N." + b"SECRET behind the end"
    made = redact_python(data, WORDS)
    assert b"SECRET" not in made
    assert read_python_pickle(made).root is None


def test_names_of_python_and_torch_stay_and_others_go() -> None:
    data = pickle.dumps([int, pickle.Pickler, Secret, Secret.method], 2)
    made = read_python_pickle(redact_python(data, WORDS))
    names = {str(name) for name in made.globals}
    assert {"builtins.int", "pickle.Pickler"} <= names
    assert not [name for name in names if "Secret" in name or "test_pickles" in name]


class Secret:
    def method(self) -> None: ...


REFERENCE = (
    b"\x80\x04\x8c\x08builtins\x94\x8c\x07getattr\x94\x93\x94"
    b"\x8c\x1etorch.distributed.rpc.internal\x94\x8c\x13_InternalRPCPickler\x94\x93\x94"
    b"\x8c\x10_tensor_receiver\x94\x86\x94R\x94K\x05\x85\x94R\x94."
)


def test_references_to_tensors_stay() -> None:
    assert redact_python(REFERENCE, WORDS) == REFERENCE


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\x80\x04", b"\x80\x04K", b"no pickle", b"\x80\x04\x8c\xffa."]
)
def test_what_can_not_be_read_is_not_half_done(data: bytes) -> None:
    with pytest.raises(DecodeError):
        redact_python(data, WORDS)


def test_jit_pickles() -> None:
    tensor = PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (7,))
    rref = PickleCall(Global("torch.distributed.rpc", "rref"), (1, 0, 300, 0, 301, 0, "__torch__.pkg.Secret"))
    tagged = PickleCall(
        Global("torch.jit._pickle", "restore_type_tag"),
        (Dict([("secret key", 4711)]), "Dict[str, int]"),
    )
    own = PickleCall(
        Global("__torch__.pkg", "Secret"), (), how="newobj", has_state=True, state=Dict([("secret", 0.1)])
    )
    value = (tensor, rref, tagged, own, 42, 2.5, "cuda:0", "secret", True, None)
    data = write_jit(value)
    made = redact_jit(data, WORDS, jit_string(WORDS), numbers=True, floats=True)
    assert len(made) == len(data)
    found = read_jit(made)
    assert found[0].args == (7,)
    assert found[1].args[:6] == (1, 0, 300, 0, 301, 0)
    assert found[2].args[1] == "Dict[str, int]"
    assert found[2].args[0].pairs[0][1] != 4711
    assert found[6] == "cuda:0"
    assert found[4] != 42
    assert b"ecret" not in made
    assert b"__torch__." in made
    assert shape(found) == shape(read_jit(data))


def test_sets_are_walked() -> None:
    assert list(children(Set(["a"]))) == ["a"]


def test_what_users_hand_to_a_gathering_is_theirs() -> None:
    """`_all_gather` of torch's sends anything; which gathering it is stays."""
    data = pickle.dumps(("worker0", 4711, {"a secret": 2.5}))
    call = (
        b"\x80\x04\x8c\x1etorch.distributed.rpc.internal\x94\x8c\tPythonUDF\x94\x93\x94"
        b"\x8c\x19torch.distributed.rpc.api\x94\x8c\x11_gather_to_leader\x94\x93\x94"
        b"(K\x07\x8c\x02w0\x94M\x67\x12\x8f\x94t\x94}\x94\x87\x94\x81\x94."
    )
    found = read_python_pickle(redact_python(call, WORDS)).root.args[1]
    assert found[0] == 7
    assert found[2] != 0x1267
    assert b"secret" not in redact_python(data, WORDS)
