"""Rows of combinations: what is shown of those that differ, and of those that could not be started."""

from __future__ import annotations

import io

from rich.console import Console

from rpcinspect.equality.difference import Difference
from rpcinspect.replayer.matrix import CombinationResult, FirstDifference
from rpcinspect.replayer.playing.report import Counts
from rpcinspect.replayer.workers.interpreters import Interpreter
from rpcinspect.views.replay.matrix import show_matrix

THERE = Interpreter(program="/x/python", python="3.11.7", torch="2.14.1", path=())


def shown(*results: CombinationResult) -> list[str]:
    console = Console(file=io.StringIO(), width=400)
    show_matrix(results, console)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_difference_and_its_reason() -> None:
    difference = Difference(code="value", path="tensors[0].elements[3]", a_value=0.5, b_value=0.25)
    first = FirstDifference(message=12, code="value", difference=difference, text="the code has changed")
    counts = Counts(expected=9, identical=5, different=2, unanswered=1, failed=1)
    one = CombinationResult(
        environment="new\x1b",
        interpreter=THERE,
        threads=4,
        verdict="different",
        counts=counts,
        unexpected=1,
        first=first,
    )
    _, row, reason, verdict = shown(one)
    place = ["#12", "tensors[0].elements[3]:", "0.5", "→", "0.25", "value"]
    assert row.split() == ["new\\x1b", "2.14.1", "4", "different", "5", "0", "3", "2", *place]
    assert reason == "#12: the code has changed"
    assert verdict == "different: 0 of 1 combination as captured"


def test_one_that_could_not_be_started() -> None:
    failed = CombinationResult(
        environment="old", interpreter=None, threads=1, verdict="failed", error="no torch\n  there"
    )
    _, row, error, rest, verdict = shown(failed)
    assert row.split() == ["old", "1", "failed", "not", "started"]
    assert (error, rest.strip()) == ("old: no torch", "there")
    assert verdict == "failed: 0 of 1 combination as captured"
