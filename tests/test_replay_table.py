"""How `make replay-table` counts: every gradient of a capture once, in lines and report alike."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def table(repo: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repo / "bench"))
    return importlib.import_module("replay_table")


def gradient(message: int, session: int, result: str | None, reason: str | None = None) -> dict[str, Any]:
    return {
        "kind": "step",
        "message": message,
        "session": session,
        "type": "BACKWARD_AUTOGRAD_REQ",
        "result": result,
        "reason": reason,
        "run": 0,
    }


def report(**gradients: int) -> dict[str, Any]:
    names = ("expected", "identical", "tolerance", "different", "unanswered", "failed", "skipped")
    rest = {"not_observed": 1, "self_calls": 1, "out_of_reach": 0}
    return {"kind": "report", "gradients": dict.fromkeys(names, 0) | gradients, **rest}


LINES = [
    gradient(1, 0, "identical"),
    gradient(1, 1, None, "driver-not-live: its program does not run"),
    gradient(2, 0, "identical"),
    gradient(2, 1, "different"),
    gradient(3, 0, None, "nested-in-answer: by itself"),
    gradient(3, 1, None, "nested-in-answer: by itself"),
    gradient(4, 0, None, "both-played: both"),
    gradient(4, 1, None, "no-gradient: it waits for another"),
    gradient(5, 0, None, "self-call: to itself"),
]
"""Message 1 and 2 are replayed, 3 takes place between live workers, 4 is skipped."""


def row(table: ModuleType, count: int, *runs: list[dict[str, Any]]) -> Any:
    made = table.Row("Suite.test_x", 10, count)
    made.runs += [table.Run(lines, 1.0, 0.5) for lines in runs]
    return made


def test_every_gradient_counts_once_with_its_worst(table: ModuleType) -> None:
    run = table.Run(LINES, 1.0, 0.5)
    assert run.gradients() == {
        "identical": 1,
        "different": 1,
        "not observed": 1,
        "no-gradient": 1,
        "self-call": 1,
    }


def test_what_does_not_add_up_is_told(table: ModuleType) -> None:
    right = report(expected=3, identical=1, different=1, skipped=1)
    assert list(row(table, 5, [*LINES, right]).faults()) == []
    (fault,) = row(table, 5, [*LINES, report(expected=3, identical=1, different=1)]).faults()
    assert "the report expects 3 and tells what came of 2" in fault
    index, rest = row(table, 6, [*LINES, right]).faults()
    assert "5 gradients, INDEX.tsv has 6" in index
    assert "accounts for 5 of 6" in rest
    wrong = list(row(table, 5, [*LINES, report(expected=3, identical=2, skipped=1)]).faults())
    assert [fault.partition(": ")[2] for fault in wrong] == [
        "1 gradients are identical, the report has 2",
        "1 gradients are different, the report has 0",
    ]


def test_outcomes_that_are_not_the_same_each_time(table: ModuleType) -> None:
    other = [*LINES[:2], gradient(2, 0, "identical"), gradient(2, 1, "identical"), *LINES[4:]]
    end = report()
    assert row(table, 5, [*LINES, end], [*LINES, end]).unstable() == []
    assert row(table, 5, [*LINES, end], [*other, end]).unstable() == [("step", 1, 2)]
    assert row(table, 5, [*LINES, end], [*LINES[:-1], end]).unstable() == [("step", 0, 5)]


def test_columns_of_torchs_agent_come_last_and_others_may_stay(table: ModuleType, tmp_path: Path) -> None:
    made = row(table, 5, [*LINES, report(expected=3, identical=1, different=1, skipped=1)])
    made.runs[0].lines[-1] |= {
        "responses": {"identical": 1, "expected": 2},
        "not_replayed": {"unsupported": 4},
    }
    assert made.cells()[-3:] == ["", "", ""]
    made.agent = made.runs[0]
    assert made.cells()[-3:] == ["1 of 3", "1 of 2", "4"]
    page = tmp_path / "page.md"
    wire = made.wire_cells()
    page.write_text(f"| {' | '.join([*wire, 'a', 'b', 'c'])} |\n", encoding="utf-8")
    made.kept = table.cells_of(page)["`test_x`"]
    assert made.cells() == [*wire, "1 of 3", "1 of 2", "4"]
