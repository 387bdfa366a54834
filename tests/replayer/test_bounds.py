"""Replays of functions that take too much memory, crash, or end their process: what comes of it and what is
told, at once and without anything that stays behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.model import Engine
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.playing.outcome import ReplayOutcome
from rpcinspect.replayer.playing.report import Report, report
from rpcinspect.replayer.replayer import replay
from rpcinspect.replayer.workers.process_exit import EarlyExit
from rpcinspect.replayer.workers.workers import Workers
from rpcinspect.run.run import RunModel
from tests.replayer.hostile_captures import Job
from tests.replayer.talks import udf

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

LITTLE = 200_000_000
"""Less than the functions take, in bytes."""
AT_ONCE_S = 3.0
"""Less than any wait for an answer, and much more than it takes."""


def replayed(
    folder: Path, functions: list[str], workers: Workers, options: ReplayOptions | None = None
) -> tuple[ReplayOutcome, Report]:
    """w0 called these functions of w1, one after the other, each of which returned 5. Everything is trusted:
    what the gate makes of it is tested elsewhere."""
    job = Job()
    for function in functions:
        job.call(udf(f"tests.replayer.badly.{function}"))
    options = options or ReplayOptions()
    how = PlanOptions(roles=("w0",), trust=True, engine=options.engine)
    with RunModel.open([str(job.write(folder))]) as opened:
        made = plan(opened, how, ExecutionPolicy())
        outcome = replay(opened, made, options, workers=workers)
    return outcome, report(outcome)


def results(outcome: ReplayOutcome) -> list[str | None]:
    return [one.result for one in outcome.runs[0][0].steps if one.step.action == "send"]


def texts(outcome: ReplayOutcome) -> list[str]:
    return [one.text or "" for one in outcome.runs[0][0].steps if one.step.action == "send"]


def end_of(outcome: ReplayOutcome) -> EarlyExit:
    """Of the only process that ended early."""
    (session,) = outcome.runs[0]
    (ended,) = session.ended
    assert ended.text in (session.failure or "")
    return ended


@pytest.mark.parametrize(
    ("function", "engine", "told"),
    [
        ("take_bytes", "wire", "MemoryError()"),
        ("take_tensor", "wire", "you tried to allocate 600000000 bytes"),
        ("take_tensor", "agent", "you tried to allocate 600000000 bytes"),
    ],
)
def test_too_much_memory_is_an_error_and_the_replay_goes_on(
    function: str, engine: Engine, told: str, tmp_path: Path, workers: Workers
) -> None:
    options = ReplayOptions(memory=LITTLE, engine=engine)
    outcome, made = replayed(tmp_path, [function, "well"], workers, options)
    assert results(outcome) == ["different", "identical"]
    text = texts(outcome)[0]
    assert text.startswith("it failed here: ")
    assert told in text
    assert text.endswith("; --memory SIZE lets live workers take more")
    assert made.verdict == "different"
    assert outcome.runs[0][0].ended == ()


@pytest.mark.parametrize("memory", [None, 0], ids=["by the captured sizes", "without a bound"])
def test_other_bounds(memory: int | None, tmp_path: Path, workers: Workers) -> None:
    options = ReplayOptions(memory=memory)
    outcome, _ = replayed(tmp_path, ["take_bytes", "take_tensor"], workers, options)
    assert results(outcome) == ["identical", "identical"]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("read_nothing", "was ended by SIGSEGV"),
        ("be_killed", "was ended by SIGKILL; this replay did not cause that"),
        ("leave", "ended with code 3"),
    ],
)
def test_a_worker_that_ends(function: str, told: str, tmp_path: Path, workers: Workers) -> None:
    began = time.monotonic()
    outcome, made = replayed(tmp_path, ["well", function, "well"], workers)
    assert time.monotonic() - began < AT_ONCE_S
    assert results(outcome) == ["identical", "failed", "failed"]
    ended = end_of(outcome)
    assert f"the live worker w1 {told}" in ended.text
    assert ended.text in texts(outcome)[1]
    assert ended.text in texts(outcome)[2]
    request = outcome.plan.sessions[0].steps[-2].message
    assert (ended.worker, ended.last_message) == ("w1", request)
    assert made.verdict == "failed"
    assert ("Segmentation fault" in ended.output) is (function == "read_nothing")


def test_a_worker_that_ends_for_lack_of_memory(tmp_path: Path, workers: Workers) -> None:
    outcome, made = replayed(tmp_path, ["take_in_cpp"], workers, ReplayOptions(memory=LITTLE))
    ended = end_of(outcome)
    assert (ended.exit.signal, ended.no_memory, made.verdict) == ("SIGABRT", True, "failed")
    assert "it ran out of memory; its limit is 200 MB (--memory)" in ended.text


def test_torchs_agent_that_ends(tmp_path: Path, workers: Workers) -> None:
    began = time.monotonic()
    options = ReplayOptions(engine="agent")
    outcome, made = replayed(tmp_path, ["well", "kill_the_caller"], workers, options)
    assert time.monotonic() - began < 2 * AT_ONCE_S
    ended = end_of(outcome)
    assert ended.text.startswith("the process that plays w0 was ended by SIGKILL; ")
    assert (ended.worker, made.verdict) == ("w0", "failed")
    assert results(outcome)[1] == "failed"


def test_every_repetition_has_its_own_end(tmp_path: Path, workers: Workers) -> None:
    options = replace(ReplayOptions(), repeat=2)
    outcome, made = replayed(tmp_path, ["be_killed"], workers, options)
    assert [len(run[0].ended) for run in outcome.runs] == [1, 1]
    assert (made.runs, made.identical_runs) == (2, 0)
