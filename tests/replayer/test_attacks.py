"""Captures by people who read the gate's code to break it: none of them gets through any more.

`captures/attacks/README.md` says what they are, `INDEX.tsv` beside it what each tries and what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import Ran, decode, rpcinspect
from tests.places import content, recorded

CANARIES = Path("/opt/demo")

_, *LINES = content("attacks/INDEX.tsv").decode().splitlines()
ROWS = [tuple(line.split("\t")) for line in LINES]
PLAYED = {"a17_class": "different", "e_f3_truncated_rref": "identical", "e_f9_own_fork_1": "different"}
PLAYED |= dict.fromkeys(("f_h_deepstate", "f_h_facts", "f_h_hides", "f_h_longkey"), "different")
"""What reaches a live worker, since it does no harm there."""
LARGE = {
    "a15_keys",
    "a16_keys",
    "a21_depth",
    "d_hang_hides",
    "d_hang_notes",
    "d_hang_set",
    "e_f10_lists_20000",
}
LARGE |= {"f_h_deepstate", "f_h_facts", "f_h_hides", "f_h_longattr", "f_h_longkey", "f_h_slots"}
"""Pickles of a hundred thousand opcodes and more."""


def rows(*columns: int, which: Callable[[tuple[str, ...]], bool]) -> list[Any]:
    """Parameters of tests: these columns of these rows of the index."""
    return [
        pytest.param(*(row[column] for column in columns), marks=[pytest.mark.slow] * (row[0] in LARGE))
        for row in ROWS
        if which(row)
    ]


def capture(name: str) -> Path:
    return next(recorded("attacks").glob(f"{name}.*"))


def attack(name: str, folder: str, *options: str) -> Ran:
    path = ["--path", recorded(f"attacks/src/{folder}")] if folder != "-" else []
    ran = rpcinspect("replay", capture(name), *path, *options, "--format", "jsonl")
    assert not [*CANARIES.glob("attack*")]
    return ran


def test_the_index_has_every_capture() -> None:
    files = {path.name.partition(".")[0] for path in recorded("attacks").glob("*.zst")}
    assert files == {row[0] for row in ROWS}


@pytest.mark.parametrize(("name", "folder", "names"), rows(0, 1, 3, which=lambda row: row[2] == "refused"))
def test_what_would_run_is_refused_before_anything_starts(name: str, folder: str, names: str) -> None:
    ran = attack(name, folder)
    assert ran.code == 4
    report = ran.objects[-1]
    assert report["verdict"] == "refused"
    assert {use["name"] for use in report["refused"]} == set(names.split(", "))


@pytest.mark.parametrize(("name", "folder", "why"), rows(0, 1, 3, which=lambda row: row[2] == "not sent"))
def test_what_would_crash_a_worker_is_not_sent(name: str, folder: str, why: str) -> None:
    ran = attack(name, folder)
    assert ran.code == 1
    steps = [step for step in ran.objects if step["kind"] == "step" and step["result"] == "failed"]
    assert [step["text"] for step in steps] == [f"not sent: {why}"]


@pytest.mark.parametrize(
    ("name", "folder", "outcome"), rows(0, 1, 2, which=lambda row: row[2] not in ("refused", "not sent"))
)
def test_what_passes_does_no_harm(name: str, folder: str, outcome: str) -> None:
    report = attack(name, folder).objects[-1]
    assert report["verdict"] == outcome
    assert report["verdict"] in ("nothing-to-replay", PLAYED.get(name))
    assert not [one for one in report["failures"] if one.get("ended")]


@pytest.mark.parametrize(
    ("name", "folder"), rows(0, 1, which=lambda row: row[0].startswith("n_") or row[0] == "f_k_line")
)
def test_no_line_is_offered_for_what_runs_anything(name: str, folder: str) -> None:
    assert [
        use["allow"] for use in attack(name, folder, "--plan").objects[-1]["globals"] if not use["allowed"]
    ] == [None]


@pytest.mark.parametrize(("name", "finding"), rows(0, 4, which=lambda row: row[4] != "-"))
def test_decode_tells_of_it(name: str, finding: str) -> None:
    ran = decode(capture(name), "--check", "--format", "jsonl")
    assert ran.code == 1
    errors = {
        line["code"] for line in ran.objects if line["kind"] == "finding" and line["severity"] == "error"
    }
    assert finding in errors
