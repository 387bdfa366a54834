from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rpcinspect.errors import DecodeError
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.pickles.semantic import tensor_index
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    Command,
    ExceptionResponse,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RemoteRet,
    RRefAck,
    RRefBackwardReq,
    RRefBackwardResp,
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    ScriptRRefFetchCall,
    ScriptRRefFetchRet,
    UnknownCommand,
)
from rpcinspect.rpc.command_codec import (
    COMMANDS,
    from_message,
    message_type_of,
    parameter_indexes,
    to_payload,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.message import MessageType as M
from rpcinspect.rpc.message import is_request
from rpcinspect.rpc.questions import command_context, fork_of, rref_of
from rpcinspect.rpc.types import ForkId, RRefId
from tests.replayer.talks import record_of
from tests.thorough import examples

TENSOR_0 = b"ctorch.jit._pickle\nbuild_tensor_from_id\n" + bytes.fromhex("71 00 28 4b 00 74 52 71 01")
UDF = (
    b"\x80\x04\x95O\0\0\0\0\0\0\0\x8c\x1etorch.distributed.rpc.internal\x94\x8c\tPythonUDF\x94\x93\x94"
    b"\x8c\x0b__mp_main__\x94\x8c\x02mk\x94\x93\x94K\x04\x85\x94}\x94\x87\x94\x81\x94."
)
SCHEMA = b"aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor"

# Payloads from captures, of every type. The second bytes of a pair of ids are (worker, local id).
VECTORS: dict[str, tuple[int, bytes, Command]] = {
    "script call": (
        M.SCRIPT_CALL,
        bytes.fromhex("80 02") + TENSOR_0 + b"\x89" + b"X\x1a\0\0\0__torch__.__mp_main__.sfunq\x02\x87.",
        ScriptCall(args=(0,), schema=None, qualified_name="__torch__.__mp_main__.sfun"),
    ),
    "script ret": (M.SCRIPT_RET, b"\x80\x02N.", ScriptResp(None)),
    "python call": (M.PYTHON_CALL, b"\0" + UDF, PythonCall(UDF, False)),
    "async python call": (M.PYTHON_CALL, b"\1" + UDF, PythonCall(UDF, True)),
    "python ret": (M.PYTHON_RET, b"\x80\x04N.", PythonResp(b"\x80\x04N.")),
    "python remote call": (
        M.PYTHON_REMOTE_CALL,
        b"\x80\x02(XZ\0\0\0" + UDF + bytes.fromhex("71 00  4b 00 4b 00 86 71 01  4b 00 4b 01 86 71 02")
        + b"\x89t.",
        PythonRemoteCall(
            tensors=(),
            serialized_py_obj=UDF,
            ret_rref_id=RRefId(0, 0),
            ret_fork_id=ForkId(0, 1),
            is_async_execution=False,
        ),
    ),
    "script remote call": (
        M.SCRIPT_REMOTE_CALL,
        b"\x80\x02(" + TENSOR_0 + b"\x89X\x1a\0\0\0__torch__.__mp_main__.add1q\x02"
        + bytes.fromhex("4b 00 4b 00 86  4b 00 4b 01 86  74 2e"),
        ScriptRemoteCall(
            args=(0,),
            schema=None,
            qualified_name="__torch__.__mp_main__.add1",
            ret_rref_id=RRefId(0, 0),
            ret_fork_id=ForkId(0, 1),
        ),
    ),
    "remote ret": (
        M.REMOTE_RET,
        bytes.fromhex("80 02  4b 01 4b 00 86 71 00  4b 01 4b 01 86 71 01  86 2e"),
        RemoteRet(RRefId(1, 0), ForkId(1, 1)),
    ),
    "user delete": (
        M.RREF_USER_DELETE,
        bytes.fromhex("80 02  4b 00 4b 03 86 71 00  4b 00 4b 05 86 71 01  86 2e"),
        RRefUserDelete(RRefId(0, 3), ForkId(0, 5)),
    ),
    "fork request": (
        M.RREF_FORK_REQUEST,
        bytes.fromhex("80 02  4b 02 4b 00 86 71 00  4b 02 4b 02 86 71 01  86 2e"),
        RRefForkRequest(RRefId(2, 0), ForkId(2, 2)),
    ),
    "child accept": (
        M.RREF_CHILD_ACCEPT,
        bytes.fromhex("80 02  4b 01 4b 04 86 71 00  85 2e"),
        RRefChildAccept(ForkId(1, 4)),
    ),
    "rref ack": (M.RREF_ACK, b"", RRefAck()),
    "script fetch": (
        M.SCRIPT_RREF_FETCH_CALL,
        bytes.fromhex("80 02  4b 02 4b 00 86  4b 00  86 2e"),
        ScriptRRefFetchCall(0, RRefId(2, 0)),
    ),
    "python fetch": (
        M.PYTHON_RREF_FETCH_CALL,
        bytes.fromhex("80 02  4b 03 4b 03 86  4b 00  86 2e"),
        PythonRRefFetchCall(0, RRefId(3, 3)),
    ),
    "script fetch ret": (M.SCRIPT_RREF_FETCH_RET, b"\x80\x02K\x07\x85.", ScriptRRefFetchRet((7,))),
    "python fetch ret": (
        M.PYTHON_RREF_FETCH_RET,
        b"\x80\x02X\x05\0\0\0\x80\x04K\x02.q\x00\x85.",
        PythonRRefFetchRet((), b"\x80\x04K\x02."),
    ),
    "gradients": (
        M.BACKWARD_AUTOGRAD_REQ,  # context 0, message (1 << 48) | 0, False
        b"\x80\x02(" + TENSOR_0 + bytes.fromhex("4b 00  8a 08 00 00 00 00 00 00 01 00  89 74 2e"),
        PropagateGradientsReq(AutogradMetadata(0, 1 << 48), (0,), False),
    ),
    "gradients resp": (M.BACKWARD_AUTOGRAD_RESP, b"", PropagateGradientsResp()),
    "cleanup": (M.CLEANUP_AUTOGRAD_CONTEXT_REQ, b"\x80\x02K\x00.", CleanupAutogradContextReq(0)),
    "cleanup resp": (M.CLEANUP_AUTOGRAD_CONTEXT_RESP, b"", CleanupAutogradContextResp()),
    "rref backward": (
        M.RREF_BACKWARD_REQ,
        bytes.fromhex("80 02  4b 00 4b 03 86  4b 00  89  87 2e"),
        RRefBackwardReq(RRefId(0, 3), 0, False),
    ),
    "rref backward resp": (M.RREF_BACKWARD_RESP, b"", RRefBackwardResp()),
    "exception": (M.EXCEPTION, b"Error on Node 0", ExceptionResponse(b"Error on Node 0")),
    "unknown": (0x1AB, b"\0\1", UnknownCommand(0x1AB, b"\0\1")),
}  # fmt: skip


def plain(command: Command) -> Command:
    """With the tensors among the arguments as their indexes: nodes of a tree compare by identity."""
    if isinstance(command, (ScriptCall, ScriptRemoteCall)):
        return structs.replace(
            command, args=tuple(tensor_index(a) if tensor_index(a) is not None else a for a in command.args)
        )
    return command


@pytest.mark.parametrize("name", VECTORS)
def test_literal_payloads(name: str) -> None:
    message_type, payload, expected = VECTORS[name]
    command = from_message(message_type, payload)
    assert plain(command) == expected
    assert message_type_of(command) == message_type
    assert to_payload(command) == payload
    assert to_payload(command, payload) == payload


def test_every_command_has_a_vector() -> None:
    assert {int(message_type) for message_type, _, _ in VECTORS.values()} >= {
        int(member) for member in COMMANDS
    }


@pytest.mark.parametrize("name", VECTORS)
def test_ids_of_requests_are_found_by_whoever_asks(name: str) -> None:
    """Of a new type, too: what builds on contexts, RRefs and forks asks these."""
    message_type, _, command = VECTORS[name]
    if not is_request(message_type) or isinstance(command, UnknownCommand):
        return
    record = record_of(command)
    context = hasattr(command, "context_id") or hasattr(command, "autograd_context_id")
    assert (command_context(command) is not None) >= context
    assert (rref_of(record) is not None) == hasattr(command, "rref_id")
    assert (fork_of(record) is not None) == hasattr(command, "fork_id")


@pytest.mark.parametrize("name", VECTORS)
def test_cut_payloads(name: str) -> None:
    message_type, payload, _ = VECTORS[name]
    raw = {M.EXCEPTION, M.PYTHON_CALL, M.PYTHON_RET, 0x1AB}
    for length in range(len(payload)):
        if message_type in raw and (length or message_type != M.PYTHON_CALL):
            from_message(message_type, payload[:length])  # any bytes will do, what is in them is read later
        else:
            with pytest.raises(DecodeError):
                from_message(message_type, payload[:length])


def test_builtin_operator() -> None:
    payload = (
        b"\x80\x02(" + TENSOR_0 + bytes.fromhex("4b 01 4b 01  58 45 00 00 00") + SCHEMA
        + bytes.fromhex("71 02  58 12 00 00 00") + b"torch.ops.aten.add" + bytes.fromhex("71 03 74 2e")
    )  # fmt: skip
    call = from_message(M.SCRIPT_CALL, payload)
    assert isinstance(call, ScriptCall)
    assert (call.function, call.schema, call.qualified_name) == (
        "aten::add.Scalar",
        SCHEMA.decode(),
        "torch.ops.aten.add",
    )
    assert [tensor_index(call.args[0]), *call.args[1:]] == [0, 1, 1]
    assert to_payload(call) == payload


def test_a_gradient_that_comes_twice() -> None:
    payload = b"\x80\x02(" + TENSOR_0 + bytes.fromhex("68 01  4b 00 4b 01 88 74 2e")
    request = from_message(M.BACKWARD_AUTOGRAD_REQ, payload)
    assert request == PropagateGradientsReq(AutogradMetadata(0, 1), (0, 0), True)
    assert to_payload(request) == payload


def test_parameters() -> None:
    # f(tensor 0, Parameter(tensor 1)), protocol 2: getattr(_InternalRPCPickler, "_tensor_receiver")(i)
    receiver = (
        b"c__builtin__\ngetattr\nctorch.distributed.rpc.internal\n_InternalRPCPickler\n"
        b"X\x10\0\0\0_tensor_receiver\x86R"
    )
    parameter = (
        b"ctorch._utils\n_rebuild_parameter\n(" + receiver + b"K\1\x85R\x88ccollections\nOrderedDict\n)RtR"
    )
    pickle = read_python_pickle(b"\x80\x02" + receiver + b"K\0\x85R" + parameter + b"\x86.")
    assert parameter_indexes(pickle) == {1}


@pytest.mark.parametrize(
    ("message_type", "payload"),
    [
        (M.PYTHON_CALL, b"\x80\x04N."),  # no async byte, as in releases before 1.6
        (M.RREF_ACK, b"\0"),
        (M.REMOTE_RET, b"\x80\x02K\x01K\x01\x86."),
        (M.RREF_CHILD_ACCEPT, b"\x80\x02]."),
        (M.CLEANUP_AUTOGRAD_CONTEXT_REQ, b"\x80\x02\x88."),
        (M.SCRIPT_CALL, b"\x80\x02\x89K\x01\x86."),
        (M.SCRIPT_CALL, b"\x80\x02\x89X\x12\0\0\0torch.ops.aten.add\x86."),
        (M.SCRIPT_CALL, b"\x80\x02X\x01\0\0\0xX\x03\0\0\0a.b\x86."),
        (M.BACKWARD_AUTOGRAD_REQ, b"\x80\x02(K\0K\0K\0\x89t."),
        (M.PYTHON_RREF_FETCH_RET, b"\x80\x02K\0\x85."),
        (M.PYTHON_RREF_FETCH_RET, b"\x80\x02)."),
        (M.RREF_BACKWARD_REQ, b"\x80\x02K\0K\3\x86K\0K\0\x87."),
    ],
)
def test_what_a_type_can_not_say(message_type: int, payload: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        from_message(message_type, payload)
    assert caught.value.layer == "rpc"


def test_one_field_changes_one_thing() -> None:
    message_type, payload, _ = VECTORS["gradients"]
    request = from_message(message_type, payload)
    assert isinstance(request, PropagateGradientsReq)
    changed = to_payload(structs.replace(request, retain_graph=True), payload)
    assert changed == payload[:-3] + b"\x88" + payload[-2:]
    message_type, payload, _ = VECTORS["user delete"]
    delete = from_message(message_type, payload)
    assert isinstance(delete, RRefUserDelete)
    changed = to_payload(structs.replace(delete, fork_id=ForkId(0, 300)), payload)
    assert changed == payload.replace(b"\x4b\x05", b"\x4d\x2c\x01")


ints = st.integers(-(1 << 63), (1 << 63) - 1)
workers = st.integers(-(1 << 15), (1 << 15) - 1)
indexes = st.lists(st.integers(0, 1000), max_size=4).map(tuple)
values = st.recursive(
    st.none() | st.booleans() | ints | st.floats(allow_nan=False) | st.text(max_size=10) |
    st.binary(max_size=10).map(lambda b: b + b"\xff"), lambda inner: st.lists(inner, max_size=3) |
    st.lists(inner, max_size=4).map(tuple), max_leaves=8,
)  # fmt: skip
arguments = st.lists(values, max_size=4).map(tuple)
rrefs, forks = st.builds(RRefId, workers, ints), st.builds(ForkId, workers, ints)
metadata = st.builds(AutogradMetadata, ints, ints)
names = st.text(min_size=1, max_size=20).map(lambda name: "__torch__." + name)
builtin = {"schema": st.text(max_size=20), "qualified_name": names.map(lambda name: "torch.ops.aten." + name)}
compiled = {"schema": st.none(), "qualified_name": names, "is_async_execution": st.booleans()}
returns = {"ret_rref_id": rrefs, "ret_fork_id": forks}
commands = st.one_of(
    st.builds(ScriptCall, args=arguments, **builtin),  # type: ignore[arg-type]
    st.builds(ScriptCall, args=arguments, **compiled),  # type: ignore[arg-type]
    st.builds(ScriptRemoteCall, args=arguments, **builtin, **returns),  # type: ignore[arg-type]
    st.builds(ScriptRemoteCall, args=arguments, **compiled, **returns),  # type: ignore[arg-type]
    st.builds(PythonCall, st.binary(), st.booleans()),
    st.builds(
        PythonRemoteCall,
        tensors=indexes,
        serialized_py_obj=st.binary(),
        is_async_execution=st.booleans(),
        ret_rref_id=rrefs,
        ret_fork_id=forks,
    ),
    st.builds(ScriptResp, values),
    st.builds(PythonResp, st.binary()),
    st.builds(ScriptRRefFetchRet, arguments),
    st.builds(PythonRRefFetchRet, indexes, st.binary()),
    st.builds(ExceptionResponse, st.binary()),
    st.builds(ScriptRRefFetchCall, workers, rrefs),
    st.builds(PythonRRefFetchCall, workers, rrefs),
    st.builds(RemoteRet, rrefs, forks),
    st.builds(RRefUserDelete, rrefs, forks),
    st.builds(RRefForkRequest, rrefs, forks),
    st.builds(RRefChildAccept, forks),
    st.builds(PropagateGradientsReq, metadata, indexes, st.booleans()),
    st.builds(CleanupAutogradContextReq, ints),
    st.builds(RRefBackwardReq, rrefs, ints, st.booleans()),
    st.builds(UnknownCommand, st.just(0x1AB), st.binary()),
)


@settings(max_examples=examples(300))
@given(commands)
def test_what_is_written_is_read_back(command: Command) -> None:
    payload = to_payload(command)
    assert from_message(message_type_of(command), payload) == command
    assert to_payload(command, payload) == payload


@settings(max_examples=examples(400))
@given(st.sampled_from(sorted(VECTORS)), st.data())
def test_hostile_payloads_raise_decode_errors_only(name: str, data: st.DataObject) -> None:
    message_type, payload, _ = VECTORS[name]
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 3)) if changed else 0):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        from_message(message_type, bytes(changed) + data.draw(st.binary(max_size=3)))
