"""Optimizer steps between another context's forward and backward."""

from __future__ import annotations

import json

import pytest

from rpcinspect.rpc.command import (
    ExceptionResponse,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonCall,
    PythonResp,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.types import unpack_id
from rpcinspect.session.model import Finding
from tests.checks.talks import SECOND, findings, of_capture, of_path, remote
from tests.places import content, recorded
from tests.replayer.planning.pickled import name, opcodes, request, rref
from tests.replayer.talks import Workers
from tests.truth import workload

OPTIM = "torch.distributed.optim.optimizer"
SGD = name("torch.optim.sgd", "SGD")
MODULE, PARAMETER, OPTIMIZER, OTHER = 1, 2, 3, 4
"""RRefs of w0."""


def told(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == "stale-gradient"]


def test_the_race_and_its_lock() -> None:
    run = workload("ps_race")
    died = {event["trainer"] for event in run.of("died")}
    won = {event["trainer"] for event in run.of("finished")}
    session, found = of_capture("ps_race")
    assert {finding.workers[1] for finding in told(found)} == died
    for finding in told(found):
        owner, victim, guilty = finding.workers
        assert (owner, finding.severity) == ("worker0", "warning")
        assert victim in died
        assert guilty in won
        # a step of the guilty one is among the messages
        assert guilty in {session.source(int(session.order[index])) for index in finding.messages}
    assert told(of_capture("ps_race_lock")[1]) == []


def test_trainers_of_one_module_and_trainers_of_their_own() -> None:
    """Nothing on the wire but the results tells that two RRefs are of one module."""
    ran = json.loads(content("reports/findings/stale_shared.truth.json"))["events"]
    forwards = [event for event in ran if event.get("function") == "stale.fwd"]
    assert {event["worker"] for event in forwards} == {"worker0"}
    trainers = {f"worker{unpack_id(event['context_id'])[0]}" for event in forwards}
    _, found = of_path(str(recorded("reports/findings/stale_shared.pcap")))
    assert {finding.workers[0] for finding in told(found)} == {"worker0"}
    assert {finding.workers[1] for finding in told(found)} == trainers
    assert all(set(finding.workers[1:]) == trainers for finding in told(found))
    assert told(of_path(str(recorded("reports/findings/stale_own.pcap")))[1]) == []


def test_replicas_that_are_trained_alike() -> None:
    """twins.py: two modules with the same weights after each step."""
    assert told(of_path(str(recorded("reports/findings/twins.rpclog")))[1]) == []


@pytest.mark.parametrize("path", sorted(recorded("torch-suite").glob("*Optim*")), ids=lambda path: path.name)
def test_trainers_of_pytorch_train_modules_of_their_own(path: object) -> None:
    assert told(of_path(str(path))[1]) == []


def answer(value: object) -> PythonResp:
    return PythonResp(b"\x80\x04" + opcodes(value) + b".")


def train(
    step_at: int,
    step_context: int = 7,
    *,
    used: int = MODULE,
    function: str = "_local_optimizer_step",
    stepper: int = 2,
    step_answer: PythonResp | None = None,
    failure: str | None = None,
    earlier: int = 0,
    again: bool = False,
) -> list[Finding]:
    """w1 in context 1:0: forward on w0 at 0 to 10, gradient from 50 on. w2 has an optimizer of the parameters
    of a module on w0, and steps: `earlier` times before that, too. `again`: w1 fails without a step, too."""
    workers = Workers(3)
    asked = PythonCall(request(name("app", "parameters"), rref(MODULE)), False)
    workers.call(2, 0, -90, -80, asked, answer([rref(PARAMETER)]))
    make = PythonCall(request(name(OPTIM, "_new_local_optimizer"), SGD, [rref(PARAMETER)]), False)
    workers.call(2, 0, -70, -60, make, answer(rref(OPTIMIZER)))
    forward = PythonCall(request(name("app", "forward"), rref(used)), False)
    workers.call(1, 0, 0, 10, forward, context=(1 << 48, 1), grads=(0, 1))
    step = PythonCall(request(name(OPTIM, function), rref(OPTIMIZER), step_context), False)
    for n in range(earlier):
        workers.call(stepper, 0, -50 + 5 * n, -48 + 5 * n, step, step_answer)
    workers.call(stepper, 0, step_at, step_at + 5, step, step_answer)
    gradient = PropagateGradientsReq(AutogradMetadata(1 << 48, 1001), (), False)
    workers.call(1, 0, 50, 60, gradient, PropagateGradientsResp() if failure is None else error(failure))
    if again and failure is not None:
        workers.call(1, 0, 100, 110, forward, context=((1 << 48) + 1, 2), grads=(0, 1))
        gradient = PropagateGradientsReq(AutogradMetadata((1 << 48) + 1, 1002), (), False)
        workers.call(1, 0, 150, 160, gradient, error(failure))
    return told(findings(workers, until=SECOND))


def error(text: str) -> ExceptionResponse:
    return ExceptionResponse(text.encode())


@pytest.mark.parametrize("function", ["_local_optimizer_step", "_functional_local_optimizer_step"])
@pytest.mark.parametrize("used", [MODULE, PARAMETER])
def test_a_step_on_what_the_forward_call_used(used: int, function: str) -> None:
    [finding] = train(20, used=used, function=function)
    assert finding.workers[:2] == ("w0", "w1")
    assert "of context 1:0 on w0" in finding.text
    assert "of context 0:7" in finding.text
    assert len(finding.messages) == 3


def test_a_step_on_something_else() -> None:
    assert train(20, used=OTHER) == []


def test_what_autograd_itself_says() -> None:
    """The step is of something else as far as RRefs tell, and the backward pass says that it is not."""
    modified = (
        "one of the variables needed for gradient computation has been modified by an inplace operation: …"
    )
    [finding] = train(20, used=OTHER, failure=f"Error on Node 0: {modified}")
    assert finding.workers[:2] == ("w0", "w1")
    assert "changed weights there" in finding.text
    assert train(20, used=OTHER, failure="Error on Node 0: shapes don't fit") == []
    assert train(-20, used=OTHER, failure=modified) == []


@pytest.mark.parametrize(
    "at", [5, 48, 55], ids=["during forward", "until after the gradient", "after the gradient"]
)
def test_a_step_at_the_time_of_the_forward_call_or_of_the_gradient(at: int) -> None:
    """Autograd says that weights were changed; that this step did it is likely, and not said."""
    modified = (
        "one of the variables needed for gradient computation has been modified by an inplace operation: …"
    )
    [finding] = train(at, used=OTHER, failure=f"Error on Node 0: {modified}")
    assert finding.text.startswith("What the backward pass needs was changed between forward (#")
    assert "as autograd says" in finding.text
    assert finding.text.endswith("(w0) was carried out at that time.")
    assert train(70, used=OTHER, failure=modified) == []
    assert train(at, 1 << 48, used=OTHER, failure=modified) == []


@pytest.mark.parametrize(
    "at", [-5, 5, 48, 55], ids=["before", "during forward", "until after the gradient", "after"]
)
def test_steps_that_spoil_nothing(at: int) -> None:
    assert train(at) == []


def test_an_error_of_the_users_own() -> None:
    """As in a job whose forward changes its own activations in place, beside another trainer with a module of
    its own: all its 25 passes fail, and no step has to do with it."""
    modified = (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        "[CPUFloatType [4, 8]], which is output 0 of Sigmoid, is at version {}; expected version {} instead."
    )
    for at in (20, 5):
        assert len(train(at, used=OTHER, failure=modified.format(1, 0))) == 1
        assert len(train(at, used=OTHER, failure=modified.format(4, 3), earlier=3)) == 1
        # whose weights have had three steps is at version 3, or later
        assert train(at, used=OTHER, failure=modified.format(1, 0), earlier=3) == []
        # it fails without any step, too
        assert train(at, used=OTHER, failure=modified.format(1, 0), again=True) == []


def test_a_step_that_failed() -> None:
    assert train(20, step_answer=remote("no gradients")) == []


def test_a_worker_that_steps_on_its_own() -> None:
    assert train(20, stepper=0) == []


def test_its_own_step_is_no_fault() -> None:
    assert train(20, 1 << 48) == []
