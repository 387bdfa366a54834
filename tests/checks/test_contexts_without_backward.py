"""Contexts that were left without a backward pass, while others of their job got gradients."""

from __future__ import annotations

import pytest

from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    ExceptionResponse,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonResp,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.session.model import Finding
from tests.checks.talks import SECOND, findings, of_capture
from tests.replayer.talks import Workers
from tests.truth import workload

LEFT, TRAINED = 1, 2
"""Contexts of w0."""


def told(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == "lost-edge"]


def test_the_context_that_the_job_leaves_so() -> None:
    (truth,) = workload("faults/tidy").of("context", note="no backward")
    session, found = of_capture("faults/tidy")
    [finding] = told(found)
    (context,) = [one for one in session.contexts if one.context_id == truth["context_id"]]
    assert finding.severity == "warning"
    assert finding.messages == tuple(sorted(edge.forward for edge in context.edges))
    assert "left 1 autograd context (0:2) in which no backward pass had run" in finding.text


def job(
    *, trains: bool = True, cleans: bool = True, grads: tuple[int, int] = (0, 1), fails: bool = False
) -> Workers:
    """w0 calls w1 in one context, and in another one that it also trains in."""
    workers = Workers(2)
    for context, at in ((LEFT, 0), (TRAINED, 1000)):
        workers.call(0, 1, at, at + 10, context=(context, context), grads=grads)
        if context == LEFT and fails:
            workers.call(0, 1, at + 20, at + 30, "app.g", ExceptionResponse(b"no"), context=(context, 9))
        if context == TRAINED and trains:
            gradient = PropagateGradientsReq(AutogradMetadata(context, 1000 + context), (), False)
            workers.call(0, 1, at + 50, at + 60, gradient, PropagateGradientsResp())
        if context == TRAINED or cleans:
            workers.call(0, 1, at + 100, at + 110, CleanupAutogradContextReq(context))
    return workers


def test_one_context_of_two() -> None:
    [finding] = told(findings(job(), until=SECOND))
    assert finding.text == (
        "w0 left 1 autograd context (0:1) in which no backward pass had run, although results that require "
        "grad came in it (w1 → w0: #1); 1 other context of the job got gradients."
    )
    assert finding.workers == ("w0", "w1")


@pytest.mark.parametrize("more", [{"trains": False}, {"cleans": False}, {"grads": (0, 0)}, {"fails": True}])
def test_contexts_of_which_nothing_is_known(more: dict[str, bool]) -> None:
    """Of no context a gradient came, it is still in use, it has no result for one, or a call in it failed."""
    assert told(findings(job(**more), until=SECOND)) == []  # type: ignore[arg-type]


def test_a_gradient_that_may_be_in_a_hole() -> None:
    workers = job()
    lost = WireFacts(damaged=frozenset({str(workers.pipes[0 * 2 + 1].flow)}))
    assert told(findings(workers, lost, until=SECOND)) == []


def test_an_answer_of_nothing_is_the_other_finding() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, answer=PythonResp(b"\x80\x02N."), context=(LEFT, 1), grads=(1, 0))
    [finding] = told(findings(workers, until=SECOND))
    assert "no backward pass can bring their gradient" in finding.text
