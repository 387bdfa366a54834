"""Whatever breaks the wrapping rule is told. That no captured message does: tests/checks/test_findings.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.envelope import AutogradMetadata, Envelope, RpcWithAutograd, RpcWithProfilingResp, wrap
from rpcinspect.rpc.message import RpcMessage
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.session.model import Finding
from tests.checks.talks import SECOND, findings
from tests.replayer.talks import NONE, Workers, udf
from tests.session.records import gradient, tp_message, tp_tensor

CODE = "unexpected-envelope"


def told(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == CODE]


def text_of(fill: Callable[[Workers], None]) -> list[str]:
    workers = Workers(2)
    fill(workers)
    found = told(findings(workers, until=SECOND))
    assert all(finding.severity == "warning" for finding in found)
    return [finding.text.partition("): ")[2] for finding in found]


def test_an_operator_without_gradients_is_never_wrapped() -> None:
    found = text_of(lambda w: w.call(0, 1, 10, 20, "aten::add", context=(0, 1)))
    assert found == ["the request travels in FORWARD_AUTOGRAD_REQ, where PyTorch uses no envelope."]
    assert text_of(lambda w: w.call(0, 1, 10, 20, "aten::add", context=(0, 1), grads=(1, 0))) == []


def test_answers() -> None:
    def bare(workers: Workers) -> None:
        workers.call(0, 1, 10, None, context=(0, 1))
        workers.say(PythonResp(NONE), pipe=1, id=0, from_client=False, time_ns=20, tensors=1)

    assert text_of(bare) == ["the answer travels in no envelope, where PyTorch uses FORWARD_AUTOGRAD_RESP."]
    assert text_of(lambda w: w.call(0, 1, 10, 20, context=(0, 1), grads=(0, 1))) == []
    assert text_of(lambda w: w.call(0, 1, 10, 20, context=(0, 1))) == []


def say(
    workers: Workers, command: Any, envelopes: list[Envelope], *, id: int, from_client: bool, grads: int = 0
) -> None:
    """A message in envelopes of any kind."""
    kind = envelopes[0].message_type
    message = RpcMessage(kind, id, wrap(envelopes, to_payload(command)), gradient(grads))
    tensors = [tp_tensor(4) for _ in range(grads)]
    time_ns = len(workers.records)
    made = tp_message(
        workers.pipes[1], message.to_payloads(), from_client=from_client, tensors=tensors, time_ns=time_ns
    )
    workers.feed(made)


def autograd(kind: int, wrapped: int, device_map: dict[str, str]) -> RpcWithAutograd:
    return RpcWithAutograd(
        message_type=kind,
        autograd_metadata=AutogradMetadata(1, 1),
        from_worker_id=0,
        device_map=device_map,
        wrapped_message_type=wrapped,
    )


def test_a_worker_has_one_device_map_for_each_other() -> None:
    def maps(*device_maps: dict[str, str]) -> Callable[[Workers], None]:
        def fill(workers: Workers) -> None:
            for number, device_map in enumerate(device_maps):
                call = PythonCall(udf("app.f"), False)
                say(workers, call, [autograd(0x10F, 0x102, device_map)], id=number, from_client=True)

        return fill

    assert text_of(maps({"cpu": "cpu"}, {"cpu": "cpu"})) == []
    [text] = text_of(maps({"cpu": "cpu"}, {}))
    assert text == "the device map differs from that of earlier requests."


def test_an_answer_has_no_device_map() -> None:
    def fill(workers: Workers) -> None:
        call = PythonCall(udf("app.f"), False)
        say(workers, call, [autograd(0x10F, 0x102, {})], id=1, from_client=True)
        answer = [autograd(0x210, 0x203, {"cpu": "cpu"})]
        say(workers, PythonResp(NONE), answer, id=1, from_client=False, grads=1)

    assert text_of(fill) == ["the envelope of an answer has a device map."]


def test_an_answer_to_another_profiling() -> None:
    def fill(workers: Workers) -> None:
        workers.call(0, 1, 0, None)
        answer = RpcWithProfilingResp(
            profiling_id=GloballyUniqueId(0, 9), profiled_events=(), wrapped_message_type=0x203
        )
        say(workers, PythonResp(NONE), [answer], id=0, from_client=False)

    assert set(text_of(fill)) == {
        "the answer travels in RUN_WITH_PROFILING_RESP, where PyTorch uses no envelope.",
        "the answer's profiling id differs from its request's.",
    }
