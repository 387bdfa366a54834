"""`--every-worker`: each worker is live in its turn, so that each gradient is compared in some session."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.runner import rpcinspect
from tests.places import CAPTURES, recorded

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")


def replayed(name: str, *options: object) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Steps, and the report."""
    always = ("--trust-capture", "--format", "jsonl")
    *lines, report = rpcinspect("replay", recorded(name), *always, *options).objects
    return [line for line in lines if line["kind"] == "step"], report


def gradients(report: dict[str, Any]) -> tuple[int, int]:
    return report["gradients"]["identical"], report["gradients"]["expected"]


def test_gradients_between_workers_that_are_live_by_default() -> None:
    """worker0 calls worker1, which calls worker2: two of four gradients stay between live workers."""
    scripts = CAPTURES / "torch" / "scripts"
    source = ("--path", scripts, "--main", scripts / "nested.py")
    _, usual = replayed("torch/nested.pcap", *source)
    assert (usual["verdict"], gradients(usual), usual["not_observed"]) == ("identical", (2, 2), 2)
    steps, report = replayed("torch/nested.pcap", *source, "--every-worker")
    assert (report["verdict"], gradients(report), report["not_observed"]) == ("identical", (4, 4), 0)
    assert report["gradients_back"]["identical"] == 4  # each was made by a live worker in some session
    assert {step["session"] for step in steps if step["action"] != "skip"} == {0, 1, 2}


def test_calls_of_a_program_to_its_own_worker() -> None:
    """Each of four workers calls itself in a context. Where its own program goes on locally, no message
    begins the pass, and the gradient is listed."""
    name = "torch-suite/TensorPipeAgentDistAutogradTest.test_backward_simple_self_sparse.pcap"
    steps, report = replayed(name, "--every-worker")
    assert report["verdict"] == "identical"
    assert (gradients(report), report["self_calls"]) == ((8, 8), 4)
    compared = {
        step["message"] for step in steps if step["type"] == "BACKWARD_AUTOGRAD_REQ" and step["result"]
    }
    assert compared == {16, 17, 19, 21, 41, 43, 52, 54}
    text = rpcinspect("replay", recorded(name), "--trust-capture", "--every-worker").out
    for message, worker in ((28, 1), (42, 0), (59, 2), (67, 3)):
        told = f"not compared: 1 gradient (#{message}): worker{worker}'s own program is not replayed"
        assert told in text


def test_it_says_itself_who_is_live() -> None:
    ran = rpcinspect("replay", recorded("basic_chain.pcap"), "--every-worker", "--live", "worker1")
    assert (ran.code, ran.out) == (2, "")
    assert "--every-worker can't be used with --role or --live" in ran.err
