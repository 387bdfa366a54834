from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from rpcinspect.fields.body import (
    SAYS,
    Bodies,
    Body,
    body_of,
    envelope_json,
    error_json,
    event_json,
    tensor_text,
)
from rpcinspect.pickles.tree import Global, PickleCall
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    Command,
    ExceptionResponse,
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RemoteRet,
    RRefAck,
    RRefBackwardReq,
    RRefChildAccept,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    ScriptRRefFetchRet,
    UnknownCommand,
)
from rpcinspect.rpc.command_codec import COMMANDS
from rpcinspect.rpc.envelope import (
    AutogradMetadata,
    RpcWithAutograd,
    RpcWithProfilingReq,
    RpcWithProfilingResp,
)
from rpcinspect.rpc.message import MessageType as M
from rpcinspect.rpc.pickle_facts import FactsReader
from rpcinspect.rpc.profiling import LegacyEvent, ProfilerConfig
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.types import ForkId, ProfilingId, RRefId
from rpcinspect.views.jsonl.lines import message_line
from tests.rpc.test_command_codec import UDF, VECTORS
from tests.views.opened import opened

TEXTS = ["tensor#0[3,4] float32 grad", "tensor#1[] int64"]
TENSOR_1 = PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (1,))
INTERNAL = b"\x80\x02ctorch.distributed.rpc.internal\n"
# PythonUDF(func=mod.f, args=(1, "a"), kwargs={"n": 3})
CALL = INTERNAL + b"PythonUDF\n(cmod\nf\nK\1X\1\0\0\0a\x86}X\1\0\0\0nK\3st\x81."
TRACE = b"On WorkerInfo(id=1, name=worker1):\nKeyError('x')\nTraceback (most recent call last):\n"
# RemoteException(TRACE, KeyError)
FAILED = (
    INTERNAL
    + b"RemoteException\nX"
    + len(TRACE).to_bytes(4, "little")
    + TRACE
    + b"cbuiltins\nKeyError\n\x86\x81."
)
ERROR = {"type": "builtins.KeyError", "node_id": 1, "text": TRACE.decode()}
IDS = {"ret_rref_id": RRefId(0, 1), "ret_fork_id": ForkId(0, 2)}
SCHEMA = "aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor"


def told_of(command: Command) -> dict[str, Any]:
    """The body of a command as it is decoded."""
    return Body(command, TEXTS, FactsReader().read(command).pickle).json


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            PythonCall(CALL, True),
            {
                "type": "PYTHON_CALL",
                "function": "mod.f",
                "args": ["1", "'a'"],
                "kwargs": {"n": "3"},
                "async": True,
            },
        ),
        (
            PythonRemoteCall(tensors=(), serialized_py_obj=UDF, is_async_execution=False, **IDS),
            {
                "type": "PYTHON_REMOTE_CALL",
                "function": "__mp_main__.mk",
                "args": ["4"],
                "kwargs": {},
                "async": False,
                "rref_id": [0, 1],
                "fork_id": [0, 2],
            },
        ),
        (
            ScriptCall(args=(TENSOR_1, 2), schema=SCHEMA, qualified_name="torch.ops.aten.add"),
            {
                "type": "SCRIPT_CALL",
                "function": "aten::add.Scalar",
                "schema": SCHEMA,
                "args": ["tensor#1[] int64", "2"],
                "async": False,
            },
        ),
        (
            ScriptRemoteCall(
                args=(), schema=None, qualified_name="__torch__.f", is_async_execution=True, **IDS
            ),
            {
                "type": "SCRIPT_REMOTE_CALL",
                "function": "__torch__.f",
                "schema": None,
                "args": [],
                "async": True,
                "rref_id": [0, 1],
                "fork_id": [0, 2],
            },
        ),
        (PythonResp(b"\x80\x04N."), {"type": "PYTHON_RET", "value": "None", "error": None}),
        (PythonResp(FAILED), {"type": "PYTHON_RET", "value": None, "error": ERROR}),
        (
            PythonRRefFetchRet((), b"\x80\x04K\x02."),
            {"type": "PYTHON_RREF_FETCH_RET", "value": "2", "error": None},
        ),
        (ScriptResp(TENSOR_1), {"type": "SCRIPT_RET", "value": "tensor#1[] int64", "error": None}),
        (ScriptRRefFetchRet((1.5,)), {"type": "SCRIPT_RREF_FETCH_RET", "value": "1.5", "error": None}),
        (
            PythonRRefFetchCall(2, RRefId(0, 3)),
            {"type": "PYTHON_RREF_FETCH_CALL", "rref_id": [0, 3], "from_worker_id": 2},
        ),
        (RemoteRet(RRefId(0, 1), ForkId(0, 2)), {"type": "REMOTE_RET", "rref_id": [0, 1], "fork_id": [0, 2]}),
        (RRefChildAccept(ForkId(0, 2)), {"type": "RREF_CHILD_ACCEPT", "fork_id": [0, 2]}),
        (RRefAck(), {"type": "RREF_ACK"}),
        (
            PropagateGradientsReq(AutogradMetadata(1 << 48, 7), (0, 1), True),
            {
                "type": "BACKWARD_AUTOGRAD_REQ",
                "context_id": 1 << 48,
                "autograd_message_id": 7,
                "retain_graph": True,
                "grads": [0, 1],
            },
        ),
        (
            RRefBackwardReq(RRefId(0, 3), 5, False),
            {"type": "RREF_BACKWARD_REQ", "rref_id": [0, 3], "context_id": 5, "retain_graph": False},
        ),
        (CleanupAutogradContextReq(9), {"type": "CLEANUP_AUTOGRAD_CONTEXT_REQ", "context_id": 9}),
        (
            ExceptionResponse(b"bad \xff"),
            {"type": "EXCEPTION", "error": {"type": None, "node_id": None, "text": "bad \\xff"}},
        ),
        (UnknownCommand(0x1AB, b"\0\xff"), {"type": "0x1ab", "payload_hex": "00ff"}),
        (UnknownCommand(M.PYTHON_CALL, b"\7"), {"type": "PYTHON_CALL", "payload_hex": "07"}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
def test_bodies_are_as_the_contract_says(command: Command, expected: dict[str, Any]) -> None:
    assert told_of(command) == expected


def test_pickles_that_can_not_be_read() -> None:
    broken = told_of(PythonCall(b"\x80", False))
    assert (broken["function"], broken["args"], broken["async"]) == (None, [], False)
    assert broken["pickle_error"]
    told = told_of(PythonResp(CALL[:-1]))
    assert (told["value"], told["error"]) == (None, None)
    assert told["pickle_error"]
    odd = told_of(PythonCall(b"\x80\x04K\x05.", False))
    assert (odd["function"], odd["args"]) == (None, ["5"])


def test_every_command_with_fields_has_a_body() -> None:
    for codec in COMMANDS.values():
        assert (codec.command in SAYS) == bool(codec.command.__struct_fields__)


@pytest.mark.parametrize("name", VECTORS)
def test_bodies_are_json(name: str) -> None:
    _, _, command = VECTORS[name]
    assert json.loads(json.dumps(told_of(command), allow_nan=False))["type"]


def test_autograd_envelope() -> None:
    envelope = RpcWithAutograd(
        message_type=M.FORWARD_AUTOGRAD_REQ,
        autograd_metadata=AutogradMetadata(1, 2),
        from_worker_id=3,
        device_map={"cuda:0": "cuda:1"},
        wrapped_message_type=M.PYTHON_CALL,
    )
    assert envelope_json(envelope) == {
        "type": "FORWARD_AUTOGRAD_REQ",
        "context_id": 1,
        "autograd_message_id": 2,
        "from_worker_id": 3,
        "device_map": {"cuda:0": "cuda:1"},
        "wrapped_type": "PYTHON_CALL",
    }


EVENT = LegacyEvent(
    kind=1,
    name="aten::mul",
    thread_id=2,
    handle=27.0,
    node_id=1,
    cpu_memory=-5,
    cpu_ns=1795814430012737595,
    cuda_recorded=False,
    cuda_memory=0,
    cuda_device=-1,
    cuda_us=-1,
    shapes=((2, 3), ()),
)
EVENT_JSON = {
    "kind": "push",
    "name": "aten::mul",
    "thread_id": 2,
    "handle": 27,
    "node_id": 1,
    "cpu_ns": 1795814430012737595,
    "cpu_memory": -5,
    "cuda_recorded": False,
    "cuda_memory": 0,
    "cuda_device": -1,
    "cuda_us": -1,
    "shapes": [[2, 3], []],
}


def test_profiling_envelopes() -> None:
    request = RpcWithProfilingReq(
        profiler_config=ProfilerConfig(1, True, False),
        profiling_id=ProfilingId(1, 1 << 48),
        wrapped_message_type=M.FORWARD_AUTOGRAD_REQ,
    )
    assert envelope_json(request) == {
        "type": "RUN_WITH_PROFILING_REQ",
        "profiling_id": [1, 1 << 48],
        "config": {"state": 1, "report_input_shapes": True, "profile_memory": False},
        "wrapped_type": "FORWARD_AUTOGRAD_REQ",
    }
    response = RpcWithProfilingResp(
        profiling_id=ProfilingId(1, 2), profiled_events=(EVENT,), wrapped_message_type=M.PYTHON_RET
    )
    assert envelope_json(response) == {
        "type": "RUN_WITH_PROFILING_RESP",
        "profiling_id": [1, 2],
        "wrapped_type": "PYTHON_RET",
        "events": [EVENT_JSON],
    }


@pytest.mark.parametrize(
    ("kind", "name"), [(0, "mark"), (1, "push"), (2, "pop"), (3, "alloc"), (9, "9"), (-1, "-1")]
)
def test_kinds_of_events(kind: int, name: str) -> None:
    assert (
        event_json(LegacyEvent(**{f: getattr(EVENT, f) for f in EVENT.__slots__} | {"kind": kind}))["kind"]
        == name
    )


FLOAT = TensorMeta(dtype="float32", sizes=(3, 4), strides=(4, 1), storage=0, storage_numel=12)


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (FLOAT, "tensor#0[3,4] float32"),
        (TensorMeta(dtype="float32", sizes=(), strides=(), requires_grad=True), "tensor#0[] float32 grad"),
        (
            TensorMeta(dtype="float32", sizes=(2,), strides=(), layout="sparse_coo"),
            "tensor#0[2] float32 sparse_coo",
        ),
        (
            TensorMeta(dtype="complex64", sizes=(2,), strides=(1,), conj=True, neg=True),
            "tensor#0[2] complex64 conj neg",
        ),
        (TensorMeta(dtype="int8", sizes=(2,), strides=(1,), device="cuda:1"), "tensor#0[2] int8 cuda:1"),
        (TensorMeta(dtype="int8", sizes=(2,), strides=(1,), device="\x1b[2J"), "tensor#0[2] int8 \\x1b[2J"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tensor_text(meta: TensorMeta, expected: str) -> None:
    assert tensor_text(0, meta) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("On WorkerInfo(id=12, name=a(b)):\nmod.Error('x')\n", ("mod.Error", 12)),
        (b"Error on Node 3: it broke", (None, 3)),
        ("The size of tensor a", (None, None)),
        ("On WorkerInfo(id=1, name=x):\n\x1b[2J", (None, 1)),
        ("On WorkerInfo(id=123456789, name=x):\n", (None, None)),
    ],
)
def test_errors(message: str | bytes, expected: tuple[str | None, int | None]) -> None:
    found = error_json(message)
    assert (found["type"], found["node_id"]) == expected


def test_a_body_is_that_of_the_message_line() -> None:
    for name in ("basic_chain.pcap", "rref_relay.pcap.gz", "dtype_zoo.pcap.gz", "bwd_boom.pcap.gz"):
        bodies = Bodies()
        with opened(name) as capture:
            for record in capture.records:
                line = json.loads(message_line(record, capture.session, capture.bytes, hashes=False))
                assert bodies.of(record).json == line["body"]


def test_messages_that_say_the_same_share_a_body() -> None:
    bodies = Bodies()
    with opened("ctx_crowd.pcap.gz") as capture:
        told = defaultdict(list)
        for record in capture.records:
            told[id(record.rpc.command), id(record.rpc.tensors)].append(bodies.of(record))
        calls = [its for its in told.values() if len(its) > 1 and "function" in its[0].json]
        assert calls
        assert all(body is its[0] for its in calls for body in its)


def test_what_is_rendered_is_there_as_trees() -> None:
    seen = set()
    for name in ("basic_chain.pcap", "rref_relay.pcap.gz", "dtype_zoo.pcap.gz", "pairs/error.pcap.gz"):
        with opened(name) as capture:
            for record in capture.records:
                body = body_of(record)
                told, trees = body.json, body.trees
                assert set(trees) == {
                    key for key in ("args", "kwargs", "value") if told.get(key) is not None
                } - (set() if "kwargs" in trees else {"kwargs"})
                if "value" in trees:
                    assert body.render(trees["value"]) == told["value"]
                if "args" in trees:
                    assert [body.render(one) for one in trees["args"]] == told["args"]
                seen |= set(trees)
    assert seen == {"args", "kwargs", "value"}
