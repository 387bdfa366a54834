"""RRefs that were not made, what live workers may send, and the result of a message."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.progress import UnmadeRRefs
from rpcinspect.replayer.playing.receiving import judged, may_come
from rpcinspect.rpc.questions import HOUSEKEEPING, created, failed, rref_of
from rpcinspect.run.run import RunModel
from tests.places import recorded


@pytest.fixture(scope="module")
def run() -> Iterator[RunModel]:
    with RunModel.open([str(recorded("rref_relay.pcap"))]) as found:
        yield found


@pytest.fixture(scope="module")
def inputs(run: RunModel) -> SessionInputs:
    [planned] = plan(run, PlanOptions(trust=True), ExecutionPolicy()).sessions
    read, rules = run.read, Rules()
    return SessionInputs(
        planned=planned, calls=run.calls, read=read, rules=rules, worker_ids={}, ids_in_group={}
    )


def test_who_needs_an_rref_that_was_not_made(run: RunModel) -> None:
    """The answer of another call, an error, stands for that of the remote call."""
    maker = next(
        call
        for call in run.calls.values()
        if call.request.rpc.command.__class__.__name__ == "PythonRemoteCall"
    )
    made = created(maker.request)
    assert made is not None
    users = [call for call in run.calls.values() if rref_of(call.request) == made[0]]
    with RunModel.open([str(recorded("bwd_boom.pcap"))]) as other:
        answers = [call.response for call in other.calls.values() if call.response is not None]
        error = next(answer for answer in answers if failed(answer))
        unmade = UnmadeRRefs()
        assert maker.response is not None
        assert not unmade.note(maker, maker.response)
        assert all(unmade.reason(call) is None for call in users)
        assert unmade.note(maker, error)
    assert users
    for call in users:
        assert f"which #{maker.index} was to make and did not" in (unmade.reason(call) or "")
    others = [call for call in run.calls.values() if call.index < maker.index]
    assert others
    assert all(unmade.reason(call) is None for call in others)


def test_only_requests_of_live_workers_may_come(inputs: SessionInputs) -> None:
    asked, spare = may_come(inputs.planned, inputs.calls)
    cast = inputs.planned.cast
    every = [*asked, *(call for its in spare.values() for call in its)]
    assert {call.caller for call in every} <= set(cast.live)
    assert {call.callee for call in every} <= set(cast.roles)
    assert {call.index for call in asked} == {
        step.message for step in inputs.planned.steps if step.action == "answer"
    }
    assert any(call.kind in HOUSEKEEPING for call in asked)


def test_devices_are_no_result(run: RunModel, inputs: SessionInputs) -> None:
    record = next(call.request for call in run.calls.values())
    device = Difference(path="tensors[0].device", code="device", a_value="cpu", b_value="cuda:0")
    value = Difference(path="args[0]", code="value", a_value=1, b_value=2)
    one, both = (judged(record, record, its, inputs) for its in ([device], [device, value]))
    assert (one.result, one.differences, one.same_payload) == ("identical", (), True)
    assert (both.result, both.differences, both.text) == ("different", (value,), None)
