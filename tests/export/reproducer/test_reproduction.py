"""What goes into a reproducer: own calls, their gradients, who has an RRef; and what stays out, and why."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from rpcinspect.export.reproducer.model import Reproduction, RRefHandle, Send, blocks_of
from rpcinspect.export.reproducer.programs import programs
from rpcinspect.export.reproducer.reproduction import ReproductionOptions, reproduction
from rpcinspect.replayer.planning.facts import rrefs_in
from rpcinspect.replayer.planning.gate import Allowance, ExecutionPolicy
from rpcinspect.replayer.planning.sessions import PlanError
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.run import RunModel
from tests.places import recorded
from tests.truth import CAPTURES, capture_of, workload


def anything(record: RpcRecord) -> str | None:
    return None


@cache
def made(name: str, **options: Any) -> Reproduction:
    """Of a bundled capture, with everything allowed."""
    with RunModel.open([str(CAPTURES / name)]) as opened:
        chosen = ReproductionOptions(trust=True, **options)
        return reproduction(opened.session, opened.messages, chosen, ExecutionPolicy(), anything)


NAMES = [
    "basic_chain",
    "param_detach",
    "rref_relay",
    "ctx_crowd",
    "ps_race_lock",
    "profiled_legacy",
    "bwd_boom",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_call_that_a_worker_made_of_its_own(name: str) -> None:
    """By what the workers printed: calls of their main programs, not those made while serving."""
    run = workload(name)
    found = made(capture_of(name).name)
    assert not found.skipped
    serving = {"bwd_boom": "worker2", "rref_relay": "worker2"}.get(name)
    wanted = Counter((e["worker"], e["to"]) for e in run.of("call") if e["worker"] != serving)
    calls = [call for call in found.calls.values() if call.kind in CALLS]
    assert Counter((call.caller, call.callee) for call in calls) == wanted


CALLS = {
    MessageType.PYTHON_CALL,
    MessageType.SCRIPT_CALL,
    MessageType.PYTHON_REMOTE_CALL,
    MessageType.SCRIPT_REMOTE_CALL,
}


@pytest.mark.parametrize("name", ["basic_chain.pcap", "ctx_crowd.pcap.gz", "param_detach.pcap"])
def test_each_gradient_between_two_workers_is_sent_or_comes_back(name: str) -> None:
    found = made(name)
    with RunModel.open([str(CAPTURES / name)]) as opened:
        gradients = {
            i
            for i, record in enumerate(opened.messages)
            if record.rpc.message.type == MessageType.BACKWARD_AUTOGRAD_REQ
        }
    assert found.sent.keys() | found.back.keys() == gradients
    assert not found.sent.keys() & found.back.keys()
    assert all(gradient.call.caller == "worker0" for gradient in found.sent.values())
    assert all(gradient.call.callee == "worker0" for gradient in found.back.values())


def test_who_has_an_rref() -> None:
    """worker0 makes some by remote calls; one is its own object, of which a fetch tells."""
    handles = made("rref_relay.pcap.gz").handles
    assert {worker for _, worker, _ in handles} == {"worker0"}
    assert Counter(handle.how for handle in handles.values()) == {"made": 3, "owned": 1}
    trained = made("pairs/base.pcap.gz").handles
    assert RRefHandle("answer", 9, ()) in trained.values()


def test_one_message_and_what_it_depends_on() -> None:
    whole, part = made("pairs/base.pcap.gz"), made("pairs/base.pcap.gz", message=66)
    assert 66 in part.calls
    assert len(part.calls) < len(whole.calls)
    assert part.left_out > 0
    assert made("pairs/base.pcap.gz", message=67).calls.keys() == part.calls.keys()


def test_one_context() -> None:
    part = made("ctx_crowd.pcap.gz", context=2)
    assert {call.context for call in part.calls.values()} == {2}


def test_only_some_workers() -> None:
    found = made("ps_race_lock.pcap.gz", roles=("worker1",))
    assert {call.caller for call in found.calls.values()} == {"worker1"}
    assert {skipped.code for skipped in found.skipped} >= {"driver-not-live"}
    others = made("ps_race_lock.pcap.gz", live=("worker1",))
    assert {call.caller for call in others.calls.values()} == {"worker2", "worker3"}


@pytest.mark.parametrize(
    "options", [{"message": 9999}, {"context": 99}, {"roles": ("nobody",)}, {"live": ("nobody",)}]
)
def test_what_is_not_in_the_capture(options: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        made("basic_chain.pcap", **options)


def refused(gate: ExecutionPolicy, **options: Any) -> Reproduction:
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        return reproduction(opened.session, opened.messages, ReproductionOptions(**options), gate, anything)


def test_the_gate() -> None:
    found = refused(ExecutionPolicy())
    assert [use.name for use in found.refused] == ["basic_chain.scale"]
    allowance = Allowance.parse("basic_chain:scale")
    assert allowance is not None
    assert not refused(ExecutionPolicy([allowance])).refused
    assert not refused(ExecutionPolicy(), trust=True).refused


def test_a_call_that_cannot_be_written_takes_its_gradients_along() -> None:
    def no_python(record: RpcRecord) -> str | None:
        return "no source" if record.facts.function == "basic_chain.scale" else None

    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        options = ReproductionOptions(trust=True)
        found = reproduction(opened.session, opened.messages, options, ExecutionPolicy(), no_python)
    assert [call.request.rpc.message.type for call in found.calls.values()] == [
        MessageType.FORWARD_AUTOGRAD_REQ
    ]
    codes = {skipped.call.index: skipped.code for skipped in found.skipped}
    assert codes[6] == "unsupported"
    assert codes[13] == "unsupported"  # a gradient for its answer
    assert codes[10] == "no-gradient"  # of the same pass, which would wait for that one
    assert not found.sent
    assert not found.back


def test_missing_bytes() -> None:
    found = made("transport_matrix_uv_only.pcap.gz")
    assert not found.calls
    assert {skipped.code for skipped in found.skipped} == {"missing-bytes"}


def test_nothing_at_all() -> None:
    assert not made("transport_matrix_default.pcap").calls


def test_rrefs_that_are_made_late_on_the_wire() -> None:
    """Workers call each other for the first time: the pipe to the maker's callee takes longest."""
    name = "TensorPipeAgentDistAutogradTest.test_backward_rref_nested_sparse.pcap.gz"
    with RunModel.open([str(recorded("torch-suite") / name)]) as opened:
        options = ReproductionOptions(trust=True)
        found = reproduction(opened.session, opened.messages, options, ExecutionPolicy(), anything)
    assert not found.skipped
    late = [
        (call, found.calls[handle.request])
        for call in found.calls.values()
        for rref in rrefs_in(call.request)
        if (handle := found.handles[call.job, call.caller, rref]).how == "made"
        and found.calls[handle.request].begin_ns > call.begin_ns
    ]
    assert late
    for program in programs(found):
        order = [
            event.call.index
            for block in blocks_of(program)
            for event in block.events
            if isinstance(event, Send)
        ]
        for call, maker in late:
            if call.caller == program.worker:
                assert order.index(maker.index) < order.index(call.index)


def test_workers_by_rank() -> None:
    workers = made("ps_race_lock.pcap.gz").workers
    assert [[worker.name for worker in its] for its in workers.values()] == [
        ["worker0", "worker1", "worker2", "worker3"]
    ]
