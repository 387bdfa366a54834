"""Answers that hold nothing, and what waiting for them cost."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from rpcinspect.rpc.command import PythonResp
from rpcinspect.session.model import Finding
from tests.checks.talks import findings, of_capture
from tests.replayer.talks import NONE, Workers
from tests.truth import workload

MS = 1_000_000


def told(found: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == "empty-results"]


def loop(
    times: int = 20, pause: int = 1, answer: bytes = NONE, took: int = 10, function: str = "app.push"
) -> list[Finding]:
    """w0 calls w1 so many times, and goes on after a pause."""
    workers = Workers(2)
    for number in range(times):
        begin = number * (took + pause) * MS
        workers.call(0, 1, begin, begin + took * MS, function, PythonResp(answer))
    return told(findings(workers))


def test_the_bundled_job() -> None:
    """What it waited by its own clock; after the last answer it does something else."""
    events = workload("costs/one_by_one").of("timed")
    took = next(event["seconds"] for event in events if event["function"] == "keep")
    [finding] = told(of_capture("costs/one_by_one")[1])
    assert finding.workers == ("worker0", "worker1")
    assert "answers of worker1 to costs.keep" in finding.text
    [waited] = re.findall(r"waited (\d+) ms", finding.text)
    assert 0.7 * took < int(waited) / 1e3 <= took


@pytest.mark.parametrize("name", ["costs/at_once", "costs/in_turn"])
def test_jobs_that_wait_for_nothing(name: str) -> None:
    assert told(of_capture(name)[1]) == []


@pytest.mark.parametrize("answer", [b"\x80\x02N.", b"\x80\x02).", b"\x80\x02].", b"\x80\x02}."])
def test_none_and_what_is_empty(answer: bytes) -> None:
    [finding] = loop(answer=answer)
    assert finding.severity == "info"
    assert "w0 waited 190 ms (87 % of the run) for 19 answers of w1 to app.push" in finding.text


@pytest.mark.parametrize(
    "answer", [b"\x80\x02K\x00.", b"\x80\x02\x89.", b"\x80\x02N\x85.", b"\x80\x02U\x00."]
)
def test_answers_that_hold_something(answer: bytes) -> None:
    assert loop(answer=answer) == []


def test_few_calls_and_short_ones() -> None:
    assert loop(times=9) == []
    assert loop(times=10_000 // 1_000, took=1, pause=0) == []


def test_whether_a_caller_waited_that_goes_on_later_is_not_known() -> None:
    assert loop(pause=10) == []


def test_what_torch_calls_for_itself() -> None:
    name = "_script_local_optimizer_step"
    assert loop(function=f"torch.distributed.optim.optimizer.{name}") == []


def test_calls_that_are_not_waited_for() -> None:
    workers = Workers(2)
    for number in range(20):
        workers.call(0, 1, number * MS, (number + 10) * MS, "app.push")
    assert told(findings(workers)) == []
