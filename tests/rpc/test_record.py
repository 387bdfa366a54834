"""Records: whole messages, cut ones, and those that no agent of torch has sent."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.fields.body import body_of
from rpcinspect.limits import Limits
from rpcinspect.pickles.jit_write import write_jit
from rpcinspect.pickles.tree import Dict, Global, PickleCall
from rpcinspect.rpc.command import (
    Command,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchRet,
    RRefUserDelete,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    ScriptRRefFetchRet,
    UnknownCommand,
)
from rpcinspect.rpc.command_codec import message_type_of, to_payload
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage
from rpcinspect.rpc.record import RecordDecoder, RpcRecord, round_trips
from rpcinspect.rpc.tensor import read_tensor_table
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.tensorpipe.control import read_descriptor
from rpcinspect.tensorpipe.control_types import ControlLayout
from tests.session.records import gradient, pipe, tp_message, tp_tensor
from tests.tensorpipe.conversations import Network, PipeTalk, Said, play
from tests.thorough import examples

CALL = PythonCall(pickle.dumps(("f", 1)), False)
PAYLOADS = RpcMessage(0x102, 7, to_payload(CALL), gradient(2)).to_payloads()


def test_a_whole_message() -> None:
    tp = tp_message(pipe(), PAYLOADS, tensors=[tp_tensor(4), tp_tensor(4)], offset=99)
    record = RecordDecoder().decode(tp)
    assert (record.row, record.rpc.message.id, record.rpc.command) == (0, 7, CALL)
    assert len(record.rpc.tensors) == 2
    assert record.problems == ()
    assert record.location.offset == 99
    assert record.location.flow == "10.0.0.1:1000>10.0.0.2:5000"


def test_rows_count_messages() -> None:
    decoder = RecordDecoder()
    assert [decoder.decode(tp_message(pipe(), PAYLOADS)).row for _ in range(3)] == [0, 1, 2]
    assert decoder.again(1, tp_message(pipe(), PAYLOADS)).row == 1


def test_tensors_without_their_storages() -> None:
    record = RecordDecoder().decode(tp_message(pipe(), PAYLOADS, tensors=[tp_tensor(4)]))
    [problem] = record.problems
    assert (problem.layer, problem.reason) == ("tensor", "tensor 1 uses storage 1, the message has 1")


RREF = GloballyUniqueId(0, 1)


def references(index: int) -> dict[str, tuple[int, bytes]]:
    """Everything that may refer to a tensor, as types and payloads."""
    jit, pickled = (
        PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (index,)),
        received(index),
    )
    commands: dict[str, Command] = {
        "argument": PythonCall(pickled, False),
        "result": PythonResp(pickled),
        "fetched": PythonRRefFetchRet((), pickled),
        "remote argument": PythonRemoteCall(
            tensors=(),
            serialized_py_obj=pickled,
            ret_rref_id=RREF,
            ret_fork_id=RREF,
            is_async_execution=False,
        ),
        "script argument": ScriptCall(args=([1, (jit,)],), schema=None, qualified_name="__torch__.f"),
        "script remote argument": ScriptRemoteCall(
            args=(jit,), schema=None, qualified_name="__torch__.f", ret_rref_id=RREF, ret_fork_id=RREF
        ),
        "script result": ScriptResp(Dict([("x", jit)])),
        "script fetched": ScriptRRefFetchRet((jit,)),
    }
    lists: dict[str, tuple[MessageType, tuple[object, ...]]] = {
        "gradient": (MessageType.BACKWARD_AUTOGRAD_REQ, (jit, 1, 2, False)),
        "remote list": (MessageType.PYTHON_REMOTE_CALL, (jit, NONE, (0, 1), (0, 1), False)),
        "fetched list": (MessageType.PYTHON_RREF_FETCH_RET, (jit, NONE)),
    }
    written = {what: (message_type_of(command), to_payload(command)) for what, command in commands.items()}
    return written | {what: (int(kind), write_jit(values)) for what, (kind, values) in lists.items()}


def received(index: int) -> bytes:
    """A Python pickle of a list with a tensor, as torch's own pickler writes the reference."""
    receiver = b"cbuiltins\ngetattr\n(ctorch.distributed.rpc.internal\n_InternalRPCPickler\n"
    number = pickle.encode_long(index)
    size = len(number).to_bytes(4, "little")
    return b"\x80\x04](" + receiver + b"X\x10\0\0\0_tensor_receivertR\x8b" + size + number + b"\x85Re."


NONE = b"\x80\x04N."
"""A pickle of None, in a string of C++."""


def with_tensors(kind: int, payload: bytes, table: bytes | None = None) -> RpcRecord:
    """A message with two tensors."""
    payloads = RpcMessage(kind, 7, payload, gradient(2) if table is None else table).to_payloads()
    return RecordDecoder().decode(tp_message(pipe(), payloads, tensors=[tp_tensor(4), tp_tensor(4)]))


@pytest.mark.parametrize("index", [-1, -(1 << 63), -5, 2, 3, 1 << 31, (1 << 63) - 1])
@pytest.mark.parametrize("what", references(0))
def test_tensors_that_a_message_does_not_have(what: str, index: int) -> None:
    record = with_tensors(*references(index)[what])
    (problem,) = record.problems
    assert f"tensor {index}" in problem.reason
    body = str(body_of(record).json)
    assert "tensor#0" not in body
    assert "tensor#-" not in body


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("what", references(0))
def test_tensors_that_it_has(what: str, index: int) -> None:
    assert with_tensors(*references(index)[what]).problems == ()


def test_an_index_that_python_can_not_print() -> None:
    record = with_tensors(MessageType.PYTHON_RET, received(1 << 100_000))
    assert [problem.reason for problem in record.problems] == [
        "a value refers to tensor <integer of 100001 bits>, the message has 2"
    ]


def test_of_a_table_that_can_not_be_read_nothing_else_is_said() -> None:
    assert len(with_tensors(*references(1)["argument"], table=b"damaged").problems) == 1


def test_the_table_without_tensors_is_one() -> None:
    assert read_tensor_table(NO_TENSORS) == ()


@pytest.mark.parametrize(
    "payloads",
    [
        (),
        (b"",),
        (b"abcd", b"12345678", b""),
        (b"abc", b"12345678", b"", b""),
        (b"a" * 99, b"b" * 99, b"", b""),
    ],
)
@pytest.mark.parametrize("cut", [False, True])
def test_payloads_that_are_no_message(payloads: tuple[bytes, ...], cut: bool) -> None:
    missing = [0] * len(payloads) if not cut or not payloads else [0] * (len(payloads) - 1) + [9]
    tp = tp_message(pipe(), payloads, missing=missing if cut else None)
    record = RecordDecoder().decode(tp)
    assert isinstance(record.rpc.command, UnknownCommand)
    assert -(2**31) <= record.rpc.message.type < 2**31
    assert -(2**63) <= record.rpc.message.id < 2**63
    assert record.problems


def test_a_cut_payload_is_kept_but_not_read() -> None:
    kind, identifier, payload, table = PAYLOADS
    tp = tp_message(pipe(), (kind, identifier, payload[:5], table), missing=[0, 0, len(payload) - 5, 0])
    record = RecordDecoder().decode(tp)
    assert record.rpc.command == UnknownCommand(0x102, payload[:5])
    assert (record.rpc.message.type, record.rpc.message.id) == (0x102, 7)
    assert len(record.rpc.tensors) == 2  # their table is whole
    assert f"{len(payload) - 5:,} bytes" in record.problems[0].reason


def test_a_cut_table_leaves_the_command() -> None:
    kind, identifier, payload, table = PAYLOADS
    tp = tp_message(pipe(), (kind, identifier, payload, table[:9]), missing=[0, 0, 0, len(table) - 9])
    record = RecordDecoder().decode(tp)
    assert record.rpc.command == CALL
    assert record.rpc.tensors == ()
    assert len(record.problems) == 1


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=60), st.binary(max_size=60))
@settings(max_examples=examples(150), deadline=None)
def test_any_payloads_make_a_record(kind: int, payload: bytes, table: bytes) -> None:
    payloads = RpcMessage(kind, -1, payload, table).to_payloads()
    record = RecordDecoder().decode(tp_message(pipe(), payloads))
    assert record.rpc.message.payload == payload


@given(st.sampled_from(sorted(MessageType)), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_damaged_payloads_make_a_record(kind: int, pick: st.DataObject) -> None:
    commands = [
        CALL,
        PythonResp(pickle.dumps(2)),
        RRefUserDelete(GloballyUniqueId(0, 1), GloballyUniqueId(0, 2)),
    ]
    payload = bytearray(to_payload(pick.draw(st.sampled_from(commands))))
    table = bytearray(gradient(1))
    for target in (payload, table):
        if pick.draw(st.booleans()):
            target[pick.draw(st.integers(0, len(target) - 1))] = pick.draw(st.integers(0, 255))
    payloads = RpcMessage(int(kind), 1, bytes(payload), bytes(table)).to_payloads()
    RecordDecoder().decode(tp_message(pipe(), payloads, tensors=[tp_tensor(4)]))
    RecordDecoder().decode(tp_message(pipe(), payloads))


def test_limits_are_problems() -> None:
    record = RecordDecoder(Limits(pickle_opcodes=3)).decode(tp_message(pipe(), PAYLOADS))
    assert {problem.layer for problem in record.problems} == {"pickle"}


@pytest.mark.parametrize("layout", [ControlLayout.V1_8, ControlLayout.V1_9])
def test_messages_round_trip(layout: ControlLayout) -> None:
    network = Network()
    talk = PipeTalk(network, layout=layout)
    talk.send(Said(id=7, payload=to_payload(CALL), table=gradient(1), tensors=(b"abcd",)))
    [tp] = play(network).messages
    assert read_descriptor(tp.descriptor_body)[1] is layout
    assert round_trips(RecordDecoder().decode(tp))
    tp.descriptor_body += b"\0"
    assert not round_trips(RecordDecoder().decode(tp))
