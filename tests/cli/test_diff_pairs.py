"""`rpcinspect diff` of runs that differ in exactly one thing: verdict, first message, what is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from typing import Any

import pytest

from tests.cli.runner import rpcinspect
from tests.pairs.expected import Check, Json, checks
from tests.thorough import some
from tests.truth import workload
from tests.views.diff.test_json_lines import check_contract

LIKELY = {
    "function": {"function"},
    "learning_rate": {"other-inputs"},
    "dropout_seed": {"not-deterministic"},
    "dtype": {"device-or-dtype"},
    "summation": {"accumulation"},
    "order_sync": {"other-order"},
    "order_sync_alike": {"other-order"},
    "call_dropped": {"missing-call"},
    "call_dropped_alike": {"missing-call"},
    "call_added": {"missing-call"},
    "call_repeated": {"missing-call"},
    "extra_iteration": {"other-length"},
    "renamed": {"other-worker"},
    "device_map": {"device-or-dtype"},
    "error": {"error"},
    "error_nested": {"error"},
}


def index_of(name: str, caller: str, number: int, part: str) -> int:
    """The index of a message by what its caller counted."""
    call = next(
        call
        for call in workload(f"pairs/{name}").calls()
        if (call.event["worker"], call.event["call"]) == (caller, number)
    )
    message = call.request if part == "request" else call.response
    assert message is not None
    index: int = message["index"]
    return index


def is_it(first: Json, expected: Json, check: Check) -> bool:
    """Whether the first difference is the expected one, down to the number of its message."""
    run = check.b if expected["in"] == "b" else check.a
    side = "b" if expected["in"] == "b" else "a"
    return (
        first["code"] == expected["code"]
        and first["type"] == expected["type"]
        and first["function"] == expected["function"]
        and (first["source"], first["destination"]) == (expected["src"], expected["dst"])
        and first[side] == index_of(run, expected["caller"], expected["call"], expected["part"])
        and (first["a"] is not None and first["b"] is not None) == (expected["in"] == "both")
        and all(first[key] == expected[key] for key in ("a_value", "b_value") if key in expected)
    )


@cache
def told(check: Check, *, back: bool = False) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and lines of a comparison, or of the one the other way round."""
    paths = check.paths()[::-1] if back else check.paths()
    ran = rpcinspect("diff", *paths, "--format", "jsonl", *check.flags)
    check_contract(ran.objects)
    return ran.code, ran.objects


@pytest.mark.parametrize("check", checks(), ids=str)
def test_verdict_and_first_message(check: Check) -> None:
    code, lines = told(check)
    verdict = lines[-1]
    assert (code, verdict["same"]) == ((0, True) if check.verdict == "same" else (1, False))
    codes = {line["code"] for line in lines[:-1]}
    for code in check.information:
        assert code in codes
    if check.first:
        assert any(is_it(verdict["first"], expected, check) for expected in check.first), verdict["first"]
        assert verdict["first"]["likely"] in LIKELY[check.b]
        assert (check.b == "device_map") == (len(verdict["first"]["alike"]) == verdict["different"] - 1 > 1)
    else:
        assert not [line for line in lines[:-1] if line["counts"]]


@pytest.mark.parametrize("check", some([c for c in checks() if "--rename" not in c.flags], 2), ids=str)
def test_the_mirror_image(check: Check) -> None:
    swap = {"missing": "extra", "extra": "missing"}
    there, back = told(check)[1], told(check, back=True)[1]
    assert there[-1]["same"] == back[-1]["same"]
    assert Counter(
        (swap.get(x["code"], x["code"]), x["b"], x["a"], x["counts"]) for x in there[:-1]
    ) == Counter((x["code"], x["a"], x["b"], x["counts"]) for x in back[:-1])


@pytest.mark.parametrize("check", some([c for c in checks() if c.verdict == "different"], 2), ids=str)
def test_the_summary_is_a_screen_or_less(check: Check) -> None:
    ran = rpcinspect("diff", *check.paths(), *check.flags)
    assert ran.code == 1
    assert len(ran.out.splitlines()) <= 24
    assert "first difference:" in ran.out


@pytest.mark.parametrize("name", ["order_sync_alike", "call_repeated", "error_nested", "renamed"])
def test_every_process_says_the_same(name: str) -> None:
    """One whose hashes of texts are others: this process draws its own at random."""
    (a, b), *_ = [check.paths() for check in checks() if check.b == name]
    done = subprocess.run(
        [sys.executable, "-m", "rpcinspect", "diff", "--all", a, b],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.stdout == rpcinspect("diff", "--all", a, b).out != ""
