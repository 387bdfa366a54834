"""Messages against messages: every command, their tensors, rules and bounds."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, verdict
from rpcinspect.equality.elements import ReadExtent
from rpcinspect.equality.ids import AUTOGRAD_MESSAGE, CONTEXT, FORK, RREF, IdMap
from rpcinspect.equality.messages import compare_messages, same_payload
from rpcinspect.equality.rules import Rules
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
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import error_of
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.types import GloballyUniqueId, pack_id
from tests.equality.builders import STRICT, codes, from_parts, record
from tests.equality.mirrors import mirrored, mirrored_ids, mirrored_rules


def unique(local: int, worker: int = 0) -> GloballyUniqueId:
    return GloballyUniqueId(worker, local)


def tensor(index: int) -> PickleCall:
    return PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (index,))


def meta(numel: int, storage: int = 0, **more: Any) -> TensorMeta:
    return TensorMeta(
        dtype="uint8", sizes=(numel,), strides=(1,), storage=storage, storage_numel=numel, **more
    )


def diff(
    one: tuple[RpcRecord, ReadExtent],
    other: tuple[RpcRecord, ReadExtent],
    rules: Rules | None = None,
    ids: IdMap | None = None,
) -> list[Difference]:
    """Both ways round."""
    (a, read_a), (b, read_b) = one, other
    rules, ids = rules or Rules(), IdMap() if ids is None else ids
    back = compare_messages(b, a, read_b, read_a, mirrored_rules(rules), mirrored_ids(ids))
    found = compare_messages(a, b, read_a, read_b, rules, ids)
    assert sorted(map(repr, map(mirrored, back))) == sorted(map(repr, found))
    return found


# --- every command ------------------------------------------------------------------------------------------


def python(value: object) -> bytes:
    return pickle.dumps(value, 4)


SCRIPT = ScriptCall(args=(1, 2.0), schema="aten::add(int a) -> int", qualified_name="torch.ops.aten.add")
REMOTE = ScriptRemoteCall(
    args=(1,), schema=None, qualified_name="__torch__.f", ret_rref_id=unique(1), ret_fork_id=unique(2)
)
PY_REMOTE = PythonRemoteCall(
    tensors=(),
    serialized_py_obj=python(1),
    ret_rref_id=unique(1),
    ret_fork_id=unique(2),
    is_async_execution=False,
)
GRADS = PropagateGradientsReq(AutogradMetadata(5, 6), (), False)
BACKWARD = RRefBackwardReq(unique(1), 5, False)


def mapped() -> IdMap:
    """1 is 1, 2 is 2, … in both runs."""
    ids = IdMap()
    for number in range(1, 4):
        assert ids.carried(RREF, unique(number), unique(number))
        assert ids.carried(FORK, unique(number), unique(number))
    assert ids.carried(CONTEXT, 5, 5)
    assert ids.carried(AUTOGRAD_MESSAGE, 6, 6)
    return ids


@pytest.mark.parametrize(
    ("one", "other", "code", "path"),
    [
        (SCRIPT, replace(SCRIPT, args=(1, 3.0)), "argument", "args[1]"),
        (SCRIPT, replace(SCRIPT, args=(1,)), "argument", "args"),
        (SCRIPT, replace(SCRIPT, schema="aten::mul(int a) -> int"), "function", "function"),
        (SCRIPT, replace(SCRIPT, schema="aten::add(int b) -> int"), "form", "schema"),
        (REMOTE, replace(REMOTE, is_async_execution=True), "field", "async"),
        (REMOTE, replace(REMOTE, ret_rref_id=unique(3)), "field", "rref_id"),
        (REMOTE, replace(REMOTE, ret_fork_id=unique(3)), "field", "fork_id"),
        (PY_REMOTE, replace(PY_REMOTE, ret_fork_id=unique(3)), "field", "fork_id"),
        (PY_REMOTE, replace(PY_REMOTE, is_async_execution=True), "field", "async"),
        (PythonCall(python(1), False), PythonCall(python(1), True), "field", "async"),
        (PythonCall(python(1), False), PythonCall(python(2), False), "argument", "args[0]"),
        (PythonCall(python(1), False), PythonCall(b"\x80\x04", False), "unknown", "body.pickle"),
        (PythonResp(python([1])), PythonResp(python([2])), "value", "value[0]"),
        (PythonResp(python([0.0])), PythonResp(python([-0.0])), "zero-sign", "value[0]"),
        (ScriptResp((1,)), ScriptResp((2,)), "value", "value[0]"),
        (ScriptRRefFetchRet((1,)), ScriptRRefFetchRet((2,)), "value", "value[0]"),
        (PythonRRefFetchCall(0, unique(1)), PythonRRefFetchCall(0, unique(2)), "field", "rref_id"),
        (PythonRRefFetchCall(0, unique(1)), PythonRRefFetchCall(1, unique(1)), "field", "from_worker_id"),
        (RemoteRet(unique(1), unique(2)), RemoteRet(unique(2), unique(2)), "field", "rref_id"),
        (RRefChildAccept(unique(1)), RRefChildAccept(unique(2)), "field", "fork_id"),
        (GRADS, replace(GRADS, retain_graph=True), "field", "retain_graph"),
        (GRADS, replace(GRADS, autograd_metadata=AutogradMetadata(7, 6)), "field", "context_id"),
        (GRADS, replace(GRADS, autograd_metadata=AutogradMetadata(5, 7)), "field", "autograd_message_id"),
        (CleanupAutogradContextReq(5), CleanupAutogradContextReq(6), "field", "context_id"),
        (BACKWARD, replace(BACKWARD, autograd_context_id=6), "field", "context_id"),
        (BACKWARD, replace(BACKWARD, rref_id=unique(3)), "field", "rref_id"),
        (BACKWARD, replace(BACKWARD, retain_graph=True), "field", "retain_graph"),
        (ExceptionResponse(b"a"), ExceptionResponse(b"b"), "error", "error.text"),
        (ExceptionResponse(b"a"), RRefAck(), "error", "error"),
        (RRefAck(), CleanupAutogradContextReq(5), "field", "body.type"),
        (UnknownCommand(0x1FF, b"a"), UnknownCommand(0x1FF, b"b"), "unknown", "body.payload"),
    ],
)
def test_every_command(one: Command, other: Command, code: str, path: str) -> None:
    assert diff(record(one), record(one), STRICT, mapped()) == []
    (found,) = diff(record(one), record(other), STRICT, mapped())
    assert (found.code, found.path) == (code, path)
    assert not same_payload(record(one)[0], record(other)[0]) or isinstance(other, RRefAck)


def udf(function: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> PythonCall:
    """The pickle of a PythonUDF."""
    module, _, name = function.rpartition(".")
    start = f"\x80\x04ctorch.distributed.rpc.internal\nPythonUDF\n(c{module}\n{name}\n".encode("latin-1")
    parts = [pickle.dumps(part, 0)[:-1] for part in (args, {} if kwargs is None else kwargs)]
    return PythonCall(start + b"".join(parts) + b"t\x81.", False)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (udf("m.f", (1,)), udf("m.g", (1,)), [("function", "function")]),
        (udf("__main__.f", (1,)), udf("__mp_main__.f", (1,)), []),
        (udf("m.f", (1, 2)), udf("m.f", (3, 4)), [("argument", "args[0]"), ("argument", "args[1]")]),
        (udf("m.f", (1,)), udf("m.f", (1, 2)), [("argument", "args")]),
        (udf("m.f", (), {"a": 1, "b": 2}), udf("m.f", (), {"b": 2, "a": 1}), []),
        (udf("m.f", (), {"lr": 0.1}), udf("m.f", (), {"lr": 0.2}), [("argument", "kwargs['lr']")]),
        (udf("m.f", (), {"lr": 0.1}), udf("m.f"), [("argument", "kwargs['lr']")]),
        (udf("m.f", ("w0",)), udf("m.f", ("ps",)), []),
    ],
)
def test_calls_of_python_functions(one: Command, other: Command, expected: list[tuple[str, str]]) -> None:
    assert record(one)[0].facts.function is not None
    found = diff(record(one), record(other), Rules(renames={"w0": "ps"}))
    assert [(difference.code, difference.path) for difference in found] == expected


def remote_exception(cls: str, text: str) -> PythonResp:
    body = b"\x80\x04ctorch.distributed.rpc.internal\nRemoteException\n("
    return PythonResp(body + pickle.dumps(text, 0)[:-1] + f"cbuiltins\n{cls}\nt\x81.".encode("latin-1"))


def test_errors_of_python_functions() -> None:
    boom = remote_exception("ValueError", "On WorkerInfo(id=1, name=w1):\nValueError('boom')\n")
    again = remote_exception("ValueError", "On WorkerInfo(id=2, name=w1):\nValueError('boom')\n")
    other = remote_exception("KeyError", "On WorkerInfo(id=1, name=w1):\nKeyError('boom')\n")
    assert error_of(record(RRefAck())[0]) is None
    assert diff(record(boom), record(again)) == []
    found = diff(record(boom), record(other))
    assert [(d.path, d.a_value) for d in found] == [
        ("error.type", "builtins.ValueError"),
        ("error.text", "ValueError('boom')"),
    ]
    (answer,) = diff(record(boom), record(PythonResp(python(1))))
    assert (answer.code, answer.path, answer.b_value) == ("error", "error", None)


# --- tensors ------------------------------------------------------------------------------------------------


def test_tensors_are_paired_by_where_they_stand() -> None:
    metas = [meta(2, 0), meta(3, 1)]
    one = record(ScriptResp((tensor(0), tensor(1))), metas=metas, storages=[b"ab", b"cde"])
    other = record(
        ScriptResp((tensor(1), tensor(0))), metas=[meta(3, 0), meta(2, 1)], storages=[b"cde", b"ab"]
    )
    assert diff(one, other, STRICT) == []
    third = record(
        ScriptResp((tensor(1), tensor(0))), metas=[meta(3, 0), meta(2, 1)], storages=[b"cdf", b"ab"]
    )
    (found,) = diff(one, third, STRICT)
    assert (found.path, found.b_path) == ("tensors[1].elements[2]", "tensors[0].elements[2]")


def test_tensors_that_nothing_refers_to_are_paired_in_order() -> None:
    one = record(RRefAck(), metas=[meta(2, 0)], storages=[b"ab"])
    other = record(RRefAck(), metas=[meta(2, 0), meta(1, 1)], storages=[b"ac", b"x"])
    found = diff(one, other)
    assert [(d.code, d.path) for d in found] == [("field", "tensors[1]"), ("value", "tensors[0].elements[1]")]
    assert (found[0].a_value, found[0].b_value) == (None, "uint8[1]")


def test_tensors_that_share_a_storage() -> None:
    one = record(RRefAck(), metas=[meta(2, 0), meta(2, 0)], storages=[b"aa"])
    other = record(RRefAck(), metas=[meta(2, 0), meta(2, 1)], storages=[b"aa", b"aa"])
    found = diff(one, other)
    assert [(d.code, d.path) for d in found] == [("form", "tensors[1].storage")]
    assert verdict(found, Rules()) == "identical"


def test_a_reference_to_no_tensor() -> None:
    one = record(ScriptResp(tensor(5)), metas=[meta(1)], storages=[b"a"])
    assert diff(one, one) == []
    assert diff(one, record(ScriptResp(tensor(5)), metas=[meta(1)], storages=[b"a"])) == []
    other = record(ScriptResp(tensor(0)), metas=[meta(1)], storages=[b"a"])
    assert "field" in codes(diff(one, other))


def test_a_cut_message_is_unknown() -> None:
    whole = record(ScriptResp(1))
    payloads = whole[0].tp.payloads
    cut = from_parts((*payloads[:2], payloads[2][:-3], b""), missing=(0, 0, 3, len(payloads[3])))
    for other in (whole, from_parts((*payloads[:2], payloads[2][:-3], b""), missing=(0, 0, 3, 9))):
        assert codes(diff(cut, other)) == ["unknown"]
    assert not same_payload(cut[0], cut[0])


def test_a_damaged_tensor_table_is_unknown() -> None:
    whole = record(RRefAck(), metas=[meta(1)], storages=[b"a"])
    damaged = from_parts((*whole[0].tp.payloads[:3], b"\x80\x02"), [b"a"])
    (found,) = diff(whole, damaged)
    assert (found.code, found.path) == ("unknown", "tensors")


# --- many differences, rules --------------------------------------------------------------------------------


def test_what_decides_is_told_however_many_differences_there_are() -> None:
    rules = Rules(max_per_message=3)
    one, other = (
        record(
            RRefAck(),
            metas=[
                TensorMeta(dtype="uint8", sizes=(1, 1), strides=(stride, 1), storage=n, storage_numel=1)
                for n in range(20)
            ],
            storages=[b"a"] * 19 + [last],
        )
        for stride, last in ((1, b"a"), (2, b"b"))
    )
    found = diff(one, other, rules)
    assert codes(found) == ["form"] * 3 + ["value"]
    assert verdict(found, rules) == "different"


def test_a_context_may_be_an_argument() -> None:
    def call(context: int, argument: int) -> tuple[RpcRecord, ReadExtent]:
        envelope = RpcWithAutograd(
            message_type=MessageType.FORWARD_AUTOGRAD_REQ,
            autograd_metadata=AutogradMetadata(context, pack_id(0, context)),
            from_worker_id=0,
            device_map={},
            wrapped_message_type=MessageType.SCRIPT_CALL,
        )
        return record(replace(SCRIPT, args=(argument,)), envelope)

    assert diff(call(3, 3), call(9, 9)) == []
    assert diff(call(3, 3), call(9, 3)) == []  # the same number, whatever it means
    assert codes(diff(call(3, 4), call(9, 10))) == ["argument"]


def test_devices_are_ignored_if_they_shall_be() -> None:
    one = record(RRefAck(), metas=[meta(1)], storages=[b"a"])
    other = record(RRefAck(), metas=[meta(1, device="cuda:0")], storages=[b"a"])
    assert codes(diff(one, other)) == ["device"]
    assert diff(one, other, Rules(ignore=frozenset({"device"}))) == []
