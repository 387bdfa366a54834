"""Tensors that require grad where no gradient can come back, and those of which that is not true."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rpcinspect.rpc.command import PythonCall
from rpcinspect.session.model import Finding
from tests.checks.talks import SECOND, findings, of_capture, of_path
from tests.places import content, recorded
from tests.replayer.talks import Workers
from tests.truth import workload


def told(found: list[Finding], code: str = "lost-edge") -> list[Finding]:
    return [finding for finding in found if finding.code == code]


def test_the_run_that_loses_edges() -> None:
    outside, inside = workload("faults/leaks").of("fault", code="lost-edge")
    assert (outside["context_id"], inside["context_id"]) == (None, 1)
    first, second = told(of_capture("faults/leaks")[1])
    for finding, truth in ((first, outside), (second, inside)):
        assert finding.severity == "warning"
        assert finding.workers == (truth["caller"], truth["callee"])
        assert truth["function"] in finding.text
    assert "no autograd envelope" in first.text
    assert "in context 0:1" in second.text


def test_parameters_that_are_only_read() -> None:
    """PyTorch's test compares weights that it is about to train: 16 fetches outside of any context."""
    path = recorded("torch-suite/DistOptimizerTest.test_dist_optim_none_grads.pcap.gz")
    session, found = of_path(str(path))
    assert len([rref for rref in session.rrefs if rref.fetches]) >= 16
    assert told(found) == []


@pytest.mark.parametrize(
    "name", ["faults/used_result", "basic_chain", "ctx_crowd", "ps_race_lock", "bwd_boom"]
)
def test_runs_that_lose_none(name: str) -> None:
    assert told(of_capture(name)[1]) == []


def test_what_every_worker_of_a_test_of_pytorch_does_is_told_once() -> None:
    """Each of four workers asks each other one to train, with tensors that require grad and no context."""
    path = recorded("torch-suite/DistAutogradTest.test_trainer_ps.pcap.gz")
    [finding] = told(of_path(str(path))[1])
    assert sorted(finding.workers) == [f"worker{rank}" for rank in range(4)]
    assert len(finding.messages) == 12
    assert finding.text.startswith("12 messages between worker")


def test_split_learning_gets_its_gradients_with_the_answers() -> None:
    """Without any context: what has the shape of the activations, and needs no gradient, is theirs."""
    run = workload("faults/split")
    sent = [event for event in run.of("call") if event["function"] == "faults.finish_step"]
    assert all(tensor["requires_grad"] for event in sent for tensor in event["tensors"])
    assert [event["changed"] for event in run.of("trained")] == [True] * len(sent)
    assert told(of_capture("faults/split")[1]) == []


def test_an_answer_that_requires_grad_outside_of_a_context() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, grads=(0, 1))
    [finding] = told(findings(workers, until=SECOND))
    assert finding.workers == ("w1", "w0")
    assert "answer of app.f #1" in finding.text


def test_a_message_that_could_not_be_read_whole_tells_nothing() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, grads=(0, 1))
    provenance = workers.builder.provenance
    provenance.kinds[provenance.kind[1]] = replace(provenance.kind_of(1), whole=False)
    assert told(findings(workers, until=SECOND)) == []


def test_a_callee_that_goes_on() -> None:
    """The tensor went to another worker in the same context: the edge leads somewhere."""
    workers = Workers(3)
    workers.call(0, 1, 0, 90, context=(1, 1), grads=(1, 0))
    workers.call(1, 2, 10, 50, context=(1, 2), grads=(1, 1))
    assert told(findings(workers, until=SECOND)) == []
    alone = Workers(3)
    alone.call(0, 1, 0, 90, context=(1, 1), grads=(1, 0))
    alone.call(1, 2, 10, 50, context=(2, 2), grads=(1, 1))  # in another context, that is
    assert len(told(findings(alone, until=SECOND))) == 1


def test_an_answer_that_did_not_come_tells_nothing() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, None, context=(1, 1), grads=(1, 0))
    assert told(findings(workers, until=10)) == []


def test_a_parameter_as_argument() -> None:
    sent = [event for event in workload("param_detach").of("call") if event["tensors"][0]["parameter"]]
    [finding] = told(of_capture("param_detach")[1], "detached-parameter")
    assert finding.severity == "warning"
    assert finding.workers == ("worker0", sent[0]["to"])
    assert len(finding.messages) == len(sent) == 1
    assert "outside of any" not in finding.text


def test_a_parameter_outside_of_a_context() -> None:
    [finding] = told(of_capture("dtype_zoo")[1], "detached-parameter")
    assert "outside of any autograd context" in finding.text


def test_pipelines_that_hand_gradients_back() -> None:
    """by_hand.py, in which the one trains, and the other one has lost its gradients."""
    truth = content("reports/findings/by_hand.truth").decode()
    for arm, unchanged in (("hand", False), ("lost", True)):
        assert f"{arm} weights unchanged: {unchanged}" in truth
        _, found = of_path(str(recorded(f"reports/findings/by_hand_{arm}.rpclog")))
        assert [finding.workers for finding in told(found)] == [("worker1", "worker0")] * unchanged


def test_modules_that_are_put_on_other_workers() -> None:
    """A pipeline of PiPPy's and a collector of torchrl's: modules are arguments, and there is no context."""
    for capture in ("reports/findings/enum_operator.pcap", "reports/latency/rref_proxies.rpclog"):
        session, found = of_path(str(recorded(capture)))
        assert session.contexts == ()
        assert told(found, "detached-parameter") == []


FROZEN = (
    b"\x80\x02ctorch.distributed.rpc.internal\nPythonUDF\ncapp\nf\nctorch._utils\n_rebuild_parameter\n"
    b"cbuiltins\ngetattr\nctorch.distributed.rpc.internal\n_InternalRPCPickler\nX\x10\x00\x00\x00_tensor_receiver"
    b"\x86RK\x00\x85R%s}\x87R\x85}\x87\x81."
)


@pytest.mark.parametrize(("flag", "count"), [(b"\x88", 1), (b"\x89", 0)], ids=["trainable", "frozen"])
def test_a_frozen_parameter_wants_no_gradient(flag: bytes, count: int) -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, PythonCall(FROZEN % flag, False))
    assert workers.records[0].facts.parameters == {0}
    assert len(told(findings(workers, until=SECOND), "detached-parameter")) == count
