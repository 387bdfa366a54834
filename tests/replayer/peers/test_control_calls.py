"""The agents' own calls: as torch pickles them, and as we do."""

from __future__ import annotations

import pickle

import pytest

from rpcinspect.replayer.peers.control_calls import (
    NO_TENSORS,
    ControlCall,
    GetDeviceInfos,
    UpdateGroupMembership,
    control_answer,
    membership_call,
    read_control_call,
)
from rpcinspect.rpc.message import Message, MessageType
from rpcinspect.run.run import open_run
from tests.places import recorded
from tests.replayer.live_calls import device_infos_call


@pytest.mark.parametrize("is_join", [True, False])
@pytest.mark.parametrize("name", ["worker0", "Wörker:\n-1_"])
def test_what_is_written_can_be_read(name: str, is_join: bool) -> None:
    call = membership_call(name, 32_767, is_join=is_join)
    assert read_control_call(call) == UpdateGroupMembership(name, 32_767, is_join)
    assert read_control_call(device_infos_call()) == GetDeviceInfos()


def test_torch_would_load_what_we_write() -> None:
    internal = pytest.importorskip("torch.distributed.rpc.internal")
    info = pytest.importorskip("torch.distributed.rpc").WorkerInfo
    loaded = pickle.loads(membership_call("worker7", 7, is_join=True).payload[1:])
    assert isinstance(loaded, internal.PythonUDF)
    assert loaded.func.__qualname__ == "_update_group_membership"
    member, devices, maps, is_join = loaded.args
    assert (type(member), member.name, member.id) == (info, "worker7", 7)
    assert (devices, maps, is_join, loaded.kwargs) == ([], {}, True, {})
    assert pickle.loads(device_infos_call().payload[1:]).func.__qualname__ == "_get_device_infos"


@pytest.mark.parametrize(
    ("call", "value"), [(GetDeviceInfos(), (0, {}, [])), (UpdateGroupMembership("w", 1, True), None)]
)
def test_answers(call: ControlCall, value: object) -> None:
    assert pickle.loads(control_answer(call).payload) == value


def test_calls_of_a_captured_dynamic_group() -> None:
    with open_run(str(recorded("torch/dyn.pcap"))) as opened:
        found = [read_control_call(record.rpc.message) for record in opened.messages]
    assert [call for call in found if call is not None] == [
        UpdateGroupMembership("worker0", 0, True),
        GetDeviceInfos(),
        UpdateGroupMembership("worker1", 1, True),
        UpdateGroupMembership("worker1", 1, True),
        UpdateGroupMembership("worker1", 1, False),
    ]


@pytest.mark.parametrize(
    "message",
    [
        Message(MessageType.PYTHON_CALL, 0, b"", NO_TENSORS),
        Message(MessageType.PYTHON_CALL, 0, b"\0garbage", NO_TENSORS),
        Message(MessageType.PYTHON_CALL, 0, b"\0" + pickle.dumps((1, 2)), NO_TENSORS),
        Message(MessageType.PYTHON_RET, 0, device_infos_call().payload, NO_TENSORS),
        Message(MessageType.PYTHON_CALL, 0, device_infos_call().payload + bytes(1 << 16), NO_TENSORS),
    ],
    ids=["empty", "garbage", "no call", "an answer", "too long"],
)
def test_everything_else_is_no_control_call(message: Message) -> None:
    assert read_control_call(message) is None
