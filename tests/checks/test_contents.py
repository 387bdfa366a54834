"""What calls are given and answers hold: equal or not, something or nothing."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest

from rpcinspect.checks.contents import CallContents, Holds, is_programs
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.command import Command, PythonCall, PythonResp, ScriptCall, ScriptResp
from rpcinspect.session.provenance import mark_of
from rpcinspect.tcp.ranges import CaptureBytes
from tests.checks.talks import no_bytes
from tests.decoded import decode
from tests.replayer.talks import NONE, udf
from tests.session.records import Talk
from tests.truth import capture_of

RREF = (
    b"cbuiltins\ngetattr\nctorch.distributed.rpc.internal\n_InternalRPCPickler\n"
    b"X\x11\x00\x00\x00_py_rref_receiver\x86R(K\x01K\x01K%cK\x01K%cK\x01X\x01\x00\x00\x00Ttq\x00\x85R"
)


def given(argument: bytes, function: str = "app.f") -> PythonCall:
    """A call with one argument, whose pickle this is without its ends."""
    head, _, _ = udf(function).partition(b")}")
    return PythonCall(head + argument + b"\x85}\x87\x81.", False)


def of(*commands: Command, tensors: Sequence[int] = ()) -> tuple[Talk, CallContents]:
    talk, contents = Talk(), CallContents(CaptureBytes(no_bytes))
    for number, command in enumerate(commands):
        forth = isinstance(command, (PythonCall, ScriptCall))
        count = tensors[number] if tensors else 0
        record = talk.say(command, id=number, from_client=forth, tensors=count)
        contents.feed(record, talk.builder.provenance.kind_of(record.row))
    return talk, contents


def digests(*commands: Command, tensors: Sequence[int] = ()) -> list[int]:
    talk, contents = of(*commands, tensors=tensors)
    found = contents.given(set(range(len(commands))), talk.builder.provenance)
    return [found[row] for row in range(len(commands))]


def plain(value: object) -> bytes:
    return pickle.dumps(value, 2)[2:-1]


def test_equal_calls_are_equal() -> None:
    one, same, other, named = digests(
        given(plain([1, "a"])),
        given(plain([1, "a"])),
        given(plain([1, "b"])),
        given(plain([1, "a"]), "app.g"),
    )
    assert one == same
    assert len({one, other, named}) == 3


def test_rrefs_are_all_alike() -> None:
    with_rref = [given(RREF % (number, number + 1)) for number in (3, 5)]
    one, same = digests(*with_rref)
    assert one == same


def test_what_stands_beside_an_rref_counts() -> None:
    one, other = digests(*(given(RREF % (3, 4) + plain(number) + b"\x86") for number in (True, False)))
    assert one != other


def test_short_tensors_are_compared_by_their_bytes() -> None:
    one, same, none = digests(*[given(plain(1))] * 3, tensors=(1, 1, 0))
    assert one == same != none


def test_operators() -> None:
    schema, name = "aten::relu(int a) -> int", "torch.ops.aten.relu"
    calls = [ScriptCall(args=(n,), schema=schema, qualified_name=name) for n in (1, 1, 2)]
    one, same, other = digests(*calls)
    assert one == same != other


@pytest.mark.parametrize(
    ("answer", "holds"),
    [
        (PythonResp(NONE), Holds.NOTHING),
        (PythonResp(pickle.dumps((), 2)), Holds.NOTHING),
        (PythonResp(pickle.dumps(set(), 2)), Holds.SOMETHING),  # a call of set with a list, in protocol 2
        (PythonResp(pickle.dumps({}, 2)), Holds.NOTHING),
        (PythonResp(pickle.dumps(False, 2)), Holds.TRUTH),
        (PythonResp(pickle.dumps(0, 2)), Holds.SOMETHING),
        (PythonResp(pickle.dumps("", 2)), Holds.SOMETHING),
        (PythonResp(pickle.dumps([None], 2)), Holds.SOMETHING),
        (ScriptResp(None), Holds.NOTHING),
        (ScriptResp(1), Holds.SOMETHING),
    ],
)
def test_what_answers_hold(answer: Command, holds: Holds) -> None:
    _, contents = of(answer)
    assert contents.holds() == {0: holds}


def test_marks_of_answers() -> None:
    _, contents = of(PythonResp(pickle.dumps({"to": ["w1", 7]}, 2)))
    assert contents.marks({0})[0] >= {mark_of("w1"), mark_of(7)}


def test_whose_functions() -> None:
    assert is_programs("app.f")
    assert is_programs("torch.distributed.rpc.rref_proxy._local_invoke")
    assert not is_programs("__torch__.torch.distributed.optim.optimizer._script_local_optimizer_step")
    assert not is_programs("torch.distributed.rpc.api._rref_typeof_on_owner")
    assert not is_programs(None)


def test_calls_are_those_of_the_program() -> None:
    """Not those of the agents."""
    with Decoding([str(capture_of("costs/one_by_one"))]) as decoding:
        contents = CallContents(decoding.bytes)
        for record in decoding.records():
            contents.feed(record, decoding.builder.provenance.kind_of(record.row))
        index = decoding.session.index
        calls = {int(index[row]) for row in contents.calls()}
    own = [m for m in decode(capture_of("costs/one_by_one")).messages if m["request"] and not m["control"]]
    assert calls == {m["index"] for m in own if m["body"].get("function", "").startswith("costs.")}
