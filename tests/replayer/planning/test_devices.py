"""Where captured tensors are put, and which device maps the workers of a replay have."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rpcinspect.pickles.tree import Global, PickleCall
from rpcinspect.replayer.planning.devices import DevicePlacement, Devices, named_devices, plain
from rpcinspect.rpc.command import PythonCall, ScriptCall
from rpcinspect.rpc.envelope import RpcWithAutograd
from tests.replayer.talks import Workers

CPU, CUDA = Devices(), Devices("cuda")


def placement(devices: Devices, *captured: str) -> DevicePlacement:
    return DevicePlacement(devices, frozenset(captured))


@pytest.mark.parametrize(
    ("devices", "captured", "places"),
    [
        (CPU, {"cpu": "cpu"}, False),
        (CPU, {"cpu": "cpu", "cuda:0": "cpu", "cuda:3": "cpu"}, True),
        (CUDA, {"cpu": "cuda:0"}, True),
        (CUDA, {"cpu": "cpu", "cuda:1": "cuda:1"}, False),
        (Devices("cuda", {"cuda:1": "cuda:0"}), {"cuda:1": "cuda:0", "cuda:0": "cuda:0"}, True),
        (Devices("cuda", {"cpu": "cuda:1"}), {"cpu": "cuda:1", "cuda:0": "cuda:0"}, True),
        (Devices("cuda", {"cuda:0": "cpu"}), {"cuda:0": "cpu"}, True),
    ],
    ids=["cpu", "no gpu here", "a gpu for a cpu's", "as it was", "two on one", "beside", "off"],
)
def test_a_place_for_each_device(devices: Devices, captured: dict[str, str], places: bool) -> None:
    made = placement(devices, *captured)
    assert {name: made(name) for name in captured} == captured
    assert made.moves is places


def test_names_of_devices() -> None:
    assert [plain(name) for name in ("cpu", "cpu:0", "cuda", "cuda:2")] == ["cpu", "cpu", "cuda:0", "cuda:2"]


def mapped(*maps: tuple[int, int, dict[str, str]]) -> Workers:
    """A request from each first worker to the second with this map in its envelope."""
    talk = Workers(3)
    for number, (caller, callee, _) in enumerate(maps):
        talk.call(caller, callee, 10 * number, 10 * number + 5, context=(0, number))
    calls = talk.calls()
    for call, (_, _, devices) in zip(calls, maps, strict=True):
        envelope = call.request.rpc.envelopes[0]
        assert isinstance(envelope, RpcWithAutograd)
        call.request.rpc = replace(call.request.rpc, envelopes=(replace(envelope, device_map=devices),))
    return talk


def test_maps_without_a_gpu_are_those_of_the_capture() -> None:
    calls = list(mapped((0, 1, {"cpu": "cpu"}), (1, 2, {})).calls())
    made = DevicePlacement.of(CPU, calls)
    assert made.maps(["w0", "w1", "w2"], calls) == {"w0": {"w1": {"cpu": "cpu"}}}


def test_maps_of_gpus_are_moved_and_every_pair_has_one() -> None:
    calls = list(mapped((0, 1, {"cuda:0": "cuda:1", "cuda:1": "cuda:0"})).calls())
    same = DevicePlacement.of(CUDA, calls).maps(["w0", "w1"], calls)
    assert same["w0"]["w1"] == {"cuda:0": "cuda:1", "cuda:1": "cuda:0"}
    assert same["w1"] == {name: {"cuda:0": "cuda:0", "cuda:1": "cuda:1"} for name in ("w0", "w1")}
    one = DevicePlacement.of(Devices("cuda", {"cuda:1": "cuda:0"}), calls).maps(["w0", "w1"], calls)
    assert one["w0"]["w1"] == one["w1"]["w0"] == {"cuda:0": "cuda:0"}
    assert DevicePlacement.of(CPU, calls).maps(["w0", "w1"], calls) == {"w0": {"w1": {"cpu": "cpu"}}}


def test_devices_in_arguments_are_named() -> None:
    script = ScriptCall(
        args=(PickleCall(Global("torch", "device"), ("cuda",)), "cuda:1", "barracuda"),
        schema=None,
        qualified_name="__torch__.f",
    )
    # PROTO 2, PythonUDF(app.f, (torch.device("cuda", 1),), {})
    udf = (
        b"\x80\x02ctorch.distributed.rpc.internal\nPythonUDF\ncapp\nf\n"
        b"ctorch\ndevice\nX\x04\x00\x00\x00cudaK\x01\x86R\x85}\x87\x81."
    )
    talk = Workers(2)
    talk.call(0, 1, 0, 5, script)
    talk.call(0, 1, 10, 15, PythonCall(udf, False))
    talk.call(0, 1, 20, 25, "app.cuda")
    first, second, _ = (call.index for call in talk.calls())
    found = named_devices(talk.calls())
    assert found == {"cuda:1": [first, second], "cuda:0": [first]}
    notes = talk.plan().notes
    assert any(
        f"Arguments name cuda:1 (#{first}, #{second}): it is passed on unchanged" in note for note in notes
    )
