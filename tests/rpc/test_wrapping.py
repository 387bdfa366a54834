"""The wrapping rule, and what workers say of their contexts; trace/test_findings.py holds captures to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.replayer.planning.devices import agreed_maps
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import is_builtin, requires_grad
from rpcinspect.rpc.wrapping import (
    envelope_types,
    wrap_answer,
    wrap_request,
    wrong_answer,
    wrong_request,
)
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import open_run
from tests.truth import NO_TENSORS, Workload, capture_of, workload

FORWARD, PROFILED = MessageType.FORWARD_AUTOGRAD_REQ, MessageType.RUN_WITH_PROFILING_REQ


@pytest.mark.parametrize("name", ["basic_chain", "ctx_crowd", "param_detach", "rref_relay", "ps_race_lock"])
def test_what_callers_say_of_their_context_predicts_the_envelope(name: str) -> None:
    """Here the fact comes from the worker that made the call, not from the message."""
    calls = calls_of(name)
    for index, in_context in contexts_of(workload(name)).items():
        record = calls[index].request
        predicted = wrap_request(
            calls[index].kind,
            builtin=is_builtin(record.rpc.command),
            in_context=in_context,
            requires_grad=requires_grad(record),
            profiling=False,
        )
        assert predicted == envelope_types(record)


def contexts_of(run: Workload) -> dict[int, bool]:
    """Message of a call → whether its caller says that it was in a context."""
    return {call.request["index"]: call.event["context_id"] is not None for call in run.calls()}


def calls_of(name: str) -> dict[int, Exchange]:
    with open_run(str(capture_of(name))) as opened:
        return opened.calls


@pytest.mark.parametrize("name", ["basic_chain", "ctx_crowd", "param_detach"])
def test_edges_that_workers_print_are_those_that_add_a_send_function(name: str) -> None:
    run = workload(name)
    assert name != NO_TENSORS
    predicted = set()
    for call in calls_of(name).values():
        for record in (call.request, call.response):
            for envelope in record.rpc.envelopes if record is not None and call.context is not None else ():
                if record is not None and requires_grad(record):
                    metadata = getattr(envelope, "autograd_metadata")  # noqa: B009
                    predicted.add((metadata.autograd_context_id, metadata.autograd_message_id))
    printed = {(event["context_id"], edge) for event in run.of("edges") for edge in event["send"]}
    assert printed
    assert printed <= predicted


@pytest.mark.parametrize(
    ("kind", "builtin", "grad", "types"),
    [
        (MessageType.PYTHON_CALL, False, False, (FORWARD,)),
        (MessageType.PYTHON_CALL, False, True, (FORWARD,)),
        (MessageType.SCRIPT_CALL, True, False, ()),
        (MessageType.SCRIPT_CALL, True, True, (FORWARD,)),
        (MessageType.SCRIPT_CALL, False, False, (FORWARD,)),
        (MessageType.SCRIPT_REMOTE_CALL, True, False, ()),
        (MessageType.PYTHON_RREF_FETCH_CALL, False, False, (FORWARD,)),
        (MessageType.BACKWARD_AUTOGRAD_REQ, False, True, ()),
        (MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ, False, False, ()),
        (MessageType.RREF_BACKWARD_REQ, False, False, ()),
    ],
)
def test_inside_a_context(kind: int, builtin: bool, grad: bool, types: tuple[int, ...]) -> None:
    for in_context, expected in ((True, types), (False, ())):
        assert expected == wrap_request(
            kind, builtin=builtin, in_context=in_context, requires_grad=grad, profiling=False
        )


def test_the_profiler_wraps_outside_of_autograd_and_not_the_fetch_of_an_rref() -> None:
    def wrapped(kind: int) -> tuple[int, ...]:
        return wrap_request(kind, builtin=False, in_context=True, requires_grad=True, profiling=True)

    assert wrapped(MessageType.PYTHON_CALL) == (PROFILED, FORWARD)
    assert wrapped(MessageType.SCRIPT_RREF_FETCH_CALL) == (FORWARD,)


def test_answers() -> None:
    both = (PROFILED, FORWARD)
    answers = MessageType.RUN_WITH_PROFILING_RESP, MessageType.FORWARD_AUTOGRAD_RESP
    assert wrap_answer(both, requires_grad=True, failed=False) == answers
    assert wrap_answer(both, requires_grad=False, failed=False) == answers[:1]
    assert wrap_answer(both, requires_grad=False, failed=True) == ()
    assert wrap_answer((), requires_grad=True, failed=False) == ()


def test_what_breaks_the_rule_is_told() -> None:
    operator, call = MessageType.SCRIPT_CALL, MessageType.PYTHON_CALL
    told = wrong_request(operator, True, (FORWARD,), False)
    assert told == "the request travels in FORWARD_AUTOGRAD_REQ, where PyTorch uses no envelope"
    assert wrong_request(operator, True, (FORWARD,), True) is None
    assert wrong_request(call, False, (FORWARD, PROFILED), False) == (
        "the request travels in FORWARD_AUTOGRAD_REQ > RUN_WITH_PROFILING_REQ, "
        "where PyTorch uses RUN_WITH_PROFILING_REQ > FORWARD_AUTOGRAD_REQ"
    )
    told = wrong_answer((FORWARD,), (), True, False)
    assert told == "the answer travels in no envelope, where PyTorch uses FORWARD_AUTOGRAD_RESP"
    assert wrong_answer((FORWARD,), (), False, False) is None
    assert wrong_answer((FORWARD,), (), True, True) is None


def test_device_maps_of_a_capture(repo: Path) -> None:
    with open_run(str(repo / "captures" / "devmap_cpu.pcap.gz")) as opened:
        calls = opened.exchanges.calls
    maps = {(caller, callee): dict(found) for (_, caller, callee), found in agreed_maps(calls).items()}
    assert maps == {("worker0", "worker1"): {"cpu": "cpu"}, ("worker0", "worker2"): {}}
