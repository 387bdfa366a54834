"""Steps of optimizers that the gradients of a context never reach, and those that they may reach."""

from __future__ import annotations

import pytest

from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.rpc.command import PropagateGradientsReq, PropagateGradientsResp, PythonCall, PythonResp
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.session.model import Finding
from tests.checks.talks import SECOND, findings, of_path, remote
from tests.places import content, recorded
from tests.replayer.planning.pickled import Raw, name, opcodes, request, rref
from tests.replayer.talks import Workers

PROXY = name("torch.distributed.rpc.rref_proxy", "_local_invoke")
TYPE_OF = name("torch.distributed.rpc.api", "_rref_typeof_on_owner")
SERVER, OPTIMIZER = 1, 2
"""RRefs of w0."""
CONTEXT = 1 << 48 | 5


def told(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == "optimizer-without-gradients"]


def test_a_job_whose_weights_stay_the_same() -> None:
    """plain_sgd.py: three contexts, and a step in each."""
    session, found = of_path(str(recorded("reports/findings/plain_sgd.pcap")))
    [finding] = told(found)
    assert finding.severity == "warning"
    assert finding.workers == ("worker1", "worker0")
    assert "Server.step" in finding.text
    kinds = [session.provenance.kind_of(int(session.order[index])) for index in finding.messages]
    assert [kind.callee is not None and kind.callee.what == "step" for kind in kinds] == [False, True] * 3


@pytest.mark.parametrize("arm", ["optim", "after", "own", "told"])
def test_ways_to_step(arm: str) -> None:
    """plain_steps.py says of each whether the weights changed. `told` gives the worker the context, of which
    it makes nothing: that can't be seen."""
    unchanged = f"{arm} weights unchanged: True" in content("reports/findings/plain_steps.truth").decode()
    assert unchanged == (arm != "own")
    _, found = of_path(str(recorded(f"reports/findings/plain_steps_{arm}.rpclog")))
    assert [finding.workers for finding in told(found)] == (
        [("worker1", "worker0")] if arm in ("optim", "after") else []
    )
    assert all("SGD.step" in finding.text for finding in told(found))


def answer(value: object) -> PythonResp:
    return PythonResp(b"\x80\x04" + opcodes(value) + b".")


def invoke(local: int, method: str, *args: object) -> PythonCall:
    return PythonCall(request(PROXY, rref(local), method, args, {}), False)


def train(
    step: PythonCall,
    *,
    inside: bool = True,
    at: int = 40,
    cls: Raw | None = None,
    answered: PythonResp | None = None,
    told_by: PythonCall | None = None,
) -> Workers:
    """w1 in context 1:5: a forward call on the server, of w0, its gradient at 20, and a step."""
    workers = Workers(2)
    if cls is not None:
        asked = PythonCall(request(TYPE_OF, rref(OPTIMIZER), True), False)
        workers.call(1, 0, -50, -40, asked, answer(cls))
    if told_by is not None:
        workers.call(1, 0, -30, -20, told_by)
    workers.call(1, 0, 0, 10, invoke(SERVER, "forward"), context=(CONTEXT, 1), grads=(0, 1))
    gradient = PropagateGradientsReq(AutogradMetadata(CONTEXT, 1001), (), False)
    workers.call(1, 0, 20, 30, gradient, PropagateGradientsResp())
    workers.call(1, 0, at, at + 5, step, answered, context=(CONTEXT, 2) if inside else None)
    return workers


def of(workers: Workers) -> list[Finding]:
    return told(findings(workers, until=SECOND))


SGD = name("torch.optim.sgd", "SGD")


@pytest.mark.parametrize("inside", [True, False])
def test_an_optimizer_of_torch(inside: bool) -> None:
    [finding] = of(train(invoke(OPTIMIZER, "step"), cls=SGD, inside=inside))
    assert "SGD.step" in finding.text
    assert "1:5" in finding.text


def test_the_object_that_the_gradients_came_for() -> None:
    assert len(of(train(invoke(SERVER, "step")))) == 1


NO_FAULT: dict[str, Workers] = {
    "a schedule": train(invoke(OPTIMIZER, "step"), cls=name("torch.optim.lr_scheduler", "StepLR")),
    "another object": train(invoke(OPTIMIZER, "step")),
    "another method": train(invoke(SERVER, "advance")),
    "it is given something": train(invoke(SERVER, "step", 3)),
    "it is given an RRef": train(invoke(SERVER, "step", rref(OPTIMIZER))),
    "it is given the context": train(invoke(OPTIMIZER, "step", CONTEXT), cls=SGD),
    "its worker was told": train(invoke(SERVER, "step"), told_by=invoke(SERVER, "begin", CONTEXT)),
    "its worker was told much": train(
        invoke(SERVER, "step"), told_by=invoke(SERVER, "begin", *map(float, range(20)))
    ),
    "outside of the context": train(invoke(SERVER, "step"), inside=False),
    "before the gradients": train(invoke(OPTIMIZER, "step"), cls=SGD, at=12),
    "it failed": train(invoke(SERVER, "step"), answered=remote("no")),
}


@pytest.mark.parametrize("case", NO_FAULT)
def test_steps_of_which_nothing_is_known(case: str) -> None:
    assert of(NO_FAULT[case]) == []


def test_requests_that_may_be_in_a_hole() -> None:
    workers = train(invoke(SERVER, "step"))
    lost = WireFacts(damaged=frozenset({str(workers.pipes[1 * 2 + 0].flow)}))
    assert told(findings(workers, lost, until=SECOND)) == []
