"""Live workers that die: where captured ones did, that is as captured, and what others do is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runner import rpcinspect
from tests.places import CAPTURES, recorded
from tests.truth import Json, Workload

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")

LOST = "EOF: end of file"
"""What torch told the caller of a worker that died."""
DIED = "as in the capture, no answer came: the live worker"


def replayed(name: str, *options: object) -> tuple[dict[int, Json], Json]:
    """The steps that took place, by their messages, and the report."""
    ran = rpcinspect("replay", recorded(f"{name}.pcap"), *options, "--format", "jsonl")
    steps = [line for line in ran.objects if line["kind"] == "step" and line["action"] != "skip"]
    return {step["message"]: step for step in steps}, ran.objects[-1]


def lost_calls(name: str) -> int:
    """How many calls of worker0 ended since the worker that they were for had died."""
    answers = Workload(name).of("answer", worker="worker0")
    return sum(one.get("error", {}).get("text", "").startswith(LOST) for one in answers)


def test_a_worker_that_ends_while_it_serves() -> None:
    steps, report = replayed("faults/dies", "--path", CAPTURES)
    died = [step for step in steps.values() if step["text"] is not None]
    assert len(died) == lost_calls("faults/dies") == 1
    assert died[0]["result"] == report["verdict"] == "identical"
    assert died[0]["text"].startswith(f"{DIED} worker1 ended with code 0")


def test_the_session_goes_on_after_a_worker_was_killed() -> None:
    """worker0 lost a call to worker1, which was killed, and one to worker2, which left at the end. What
    worker2 served meanwhile is compared: one answer has frames of the job's launcher."""
    steps, report = replayed("logs/killed", "--path", CAPTURES)
    died = {index: step["to"] for index, step in steps.items() if DIED in (step["text"] or "")}
    assert list(died.values()) == ["worker1", "worker2"]
    assert len(died) == lost_calls("logs/killed")
    assert {steps[index]["result"] for index in died} == {"identical"}
    assert "was ended by SIGKILL" in steps[min(died)]["text"]
    assert (report["failed"], report["responses"]["different"]) == (0, 1)


def test_a_worker_that_dies_before_the_captured_one_did(tmp_path: Path) -> None:
    (tmp_path / "faults.py").write_text("import os\ndef nothing(): os._exit(3)\ndef leave(): ...\n")
    steps, report = replayed("faults/dies", "--path", tmp_path)
    assert {step["result"] for step in steps.values()} == {"failed"}
    assert (report["verdict"], report["failures"][0]["ended"][0]["exit_code"]) == ("failed", 3)
