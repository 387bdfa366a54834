"""Devices that no map covers. A CPU has only the device meta for that; other messages are made up."""

from __future__ import annotations

import pytest

from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.rpc.command import ExceptionResponse, PythonCall
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd, wrap
from rpcinspect.rpc.message import MessageType, RpcMessage
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from rpcinspect.session.model import Finding
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tensorpipe.control_types import ControlLayout, TpDevice, TpTensorDescriptor
from rpcinspect.tensorpipe.records import Placement, TpTensor
from tests.checks.talks import SECOND, findings, named, of_capture, remote
from tests.replayer.talks import Workers, udf
from tests.session.records import tp_message
from tests.truth import workload

CUDA0, CUDA1 = TpDevice("cuda", 0), TpDevice("cuda", 1)


def told(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == "device-map-missing"]


def send(
    device: str,
    target: TpDevice | None,
    device_map: dict[str, str] | None,
    *,
    layout: ControlLayout = ControlLayout.V1_9,
) -> list[Finding]:
    """One call with a tensor on a device; `device_map` of its envelope, if it has one."""
    workers = Workers(2)
    meta = TensorMeta(dtype="float32", sizes=(1,), strides=(1,), device=device, storage=0, storage_numel=1)
    kind, payload = int(MessageType.PYTHON_CALL), b"\x00" + udf("app.f")
    if device_map is not None:
        envelope = RpcWithAutograd(
            message_type=int(MessageType.FORWARD_AUTOGRAD_REQ),
            autograd_metadata=AutogradMetadata(1, 1),
            from_worker_id=0,
            device_map=device_map,
            wrapped_message_type=kind,
        )
        kind, payload = envelope.message_type, wrap([envelope], payload)
    message = RpcMessage(kind, 5, payload, to_tensor_table([meta]))
    source = TpDevice("cpu", 0) if device == "cpu" else TpDevice("cuda", int(device[-1]))
    descriptor = TpTensorDescriptor(length=4, source_device=source, target_device=target)
    tensor = TpTensor(descriptor, Placement.CERTAIN, Extent(4, ((0, 0, 4),)))
    made = tp_message(workers.pipes[1], message.to_payloads(), tensors=[tensor])
    made.layout = layout
    record = workers.feed(made)
    assert isinstance(record.rpc.command, PythonCall)
    return told(findings(workers, until=10))


def test_a_device_that_the_envelope_does_not_map() -> None:
    [finding] = send("cuda:1", CUDA1, {"cuda:0": "cuda:1"})
    assert finding.severity == "error"
    assert (finding.messages, finding.workers) == ((0,), ("w0", "w1"))
    assert finding.remedy is not None
    assert 'options.set_device_map("w1", {"cuda:1": …})' in finding.remedy


def test_a_tensor_that_is_to_go_nowhere() -> None:
    assert len(send("cuda:0", None, None)) == 1


@pytest.mark.parametrize(
    ("device", "target", "device_map"),
    [
        ("cuda:0", CUDA1, {"cuda:0": "cuda:1"}),
        ("cuda:0", CUDA0, None),
        ("cpu", TpDevice("cpu", 0), {}),
        ("cpu", None, {"cuda:0": "cuda:1"}),
    ],
    ids=["mapped", "outside of a context", "cpu needs none", "cpu without a target"],
)
def test_devices_that_are_covered(
    device: str, target: TpDevice | None, device_map: dict[str, str] | None
) -> None:
    assert send(device, target, device_map) == []


def test_descriptors_of_1_8_name_no_target() -> None:
    assert send("cuda:0", None, {"cuda:0": "cuda:1"}, layout=ControlLayout.V1_8) == []
    assert len(send("cuda:0", None, {}, layout=ControlLayout.V1_8)) == 1


TENSORPIPE = (
    "TensorPipe RPC backend only supports CPU tensors by default, please move your tensors to CPU before "
    "sending them over RPC, or call `set_device_map` on `TensorPipeRpcBackendOptions` to explicitly "
    "configure device mapping. {} device mapping is not available for destination {}, but found tensor on "
    "device: {}"
)
"""As torch 2.13 says it (captures/faults/unfit)."""


def test_a_result_that_its_callee_could_not_send() -> None:
    """The one such device that a CPU has."""
    (truth,) = workload("faults/unfit").of("fault", code="device-map-missing")
    (failed,) = [m for m in workload("faults/unfit").decoded.messages if m["type"] == "EXCEPTION"]
    assert TENSORPIPE.format("Response", "worker0", "meta") in failed["body"]["error"]["text"]
    [finding] = told(of_capture("faults/unfit")[1])
    assert finding.workers == (truth["callee"], truth["caller"])
    assert finding.messages == (failed["index"],)
    assert f"had tensors on {truth['device']}," in finding.text
    assert "set_device_map" not in (finding.remedy or "")
    assert told(of_capture("faults/fit")[1]) == []


def test_a_result_on_a_gpu_gets_its_line_at_the_caller() -> None:
    workers = Workers(2)
    answer = ExceptionResponse(TENSORPIPE.format("Response", "w0", "cuda:1").encode())
    workers.call(0, 1, 0, 10, "app.f", answer)
    [finding] = told(findings(workers, until=SECOND))
    assert finding.text.startswith("w1 could not send an answer to w0 (#1): it had tensors on cuda:1, ")
    assert "device map of w0 for w1" in finding.text
    assert 'On w0, before init_rpc: options.set_device_map("w1", {…: "cuda:1"})' in (finding.remedy or "")


def test_a_request_that_a_callee_could_not_make_is_laid_to_it() -> None:
    """w0 calls w1, which calls w2, which has a tensor for w3: both that pass the error on quote it."""
    workers = Workers(4)
    refused = TENSORPIPE.format("Request", "w3", "cuda:0")
    inner = f"On WorkerInfo(id=2, name=w2):\nRuntimeError('{refused}')\nTraceback (most recent call last):\n"
    outer = f"On WorkerInfo(id=1, name=w1):\nRuntimeError({inner!r})\nTraceback (most recent call last):\n"
    workers.call(0, 1, 0, 90, "app.f", remote(outer))
    workers.call(1, 2, 10, 50, "app.g", remote(inner))
    found = findings(workers, WireFacts(), *named(4), until=SECOND)
    [finding] = told(found)
    assert finding.workers == ("w2", "w3")
    assert finding.text.startswith("w2 could not send a request to w3 (#2, #3): it had tensors on cuda:0, ")
    assert 'On w2, before init_rpc: options.set_device_map("w3", {"cuda:0": …})' in (finding.remedy or "")


def test_whoever_only_quotes_that_an_answer_could_not_be_sent_is_not_blamed() -> None:
    workers = Workers(3)
    refused = TENSORPIPE.format("Response", "w1", "cuda:0")
    quoted = f"On WorkerInfo(id=1, name=w1):\nRuntimeError('{refused}')\nTraceback (most recent call last):\n"
    workers.call(0, 1, 0, 90, "app.f", remote(quoted))
    workers.call(1, 2, 10, 50, "app.g", ExceptionResponse(refused.encode()))
    [finding] = told(findings(workers, until=SECOND))
    assert finding.workers == ("w2", "w1")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Response device mapping is not available for destination w0, cuda:1 for device cuda:0", 1),
        ("TensorPipe RPC backend only supports CPU tensors by default, please move your tensors to CPU", 1),
        ("the device is on fire", 0),
    ],
)
def test_an_answer_that_could_not_be_sent(text: str, count: int) -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, "app.f", ExceptionResponse(text.encode()))
    found = told(findings(workers, until=SECOND))
    assert len(found) == count
    for finding in found:
        assert (finding.messages, finding.workers) == ((1,), ("w1", "w0"))


def test_maps_of_cpus_are_never_missing() -> None:
    assert told(of_capture("devmap_cpu")[1]) == []
    assert told(of_capture("devmap_cpu_refused")[1]) == []  # the refusal is no message
