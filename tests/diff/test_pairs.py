"""The pairs that differ in one thing: which message of each run is the first to differ, in either direction,
and that nothing is told of runs that are the same. More of them in tests/cli/test_diff_pairs.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.runner import Ran, rpcinspect
from tests.pairs.expected import Check, Json, checks
from tests.truth import workload

CHECKS = checks()
DIFFERENT = [check for check in CHECKS if check.first]
SAME = [check for check in CHECKS if not check.first]
MIRRORED = {"missing": "extra", "extra": "missing"}


def diff(check: Check) -> Ran:
    return rpcinspect("diff", *check.paths(), "--format", "jsonl", *check.flags)


def mirrored(check: Check) -> Ran:
    flags = ["=".join(reversed(flag.split("="))) for flag in check.flags]
    return rpcinspect("diff", *reversed(check.paths()), "--format", "jsonl", *flags)


def verdict(ran: Ran) -> Json:
    (found,) = [line for line in ran.objects if line["kind"] == "verdict"]
    assert ran.objects[-1] == found
    assert ran.code == (0 if found["same"] else 1)
    return found


def differences(ran: Ran) -> list[Json]:
    """All but information about time."""
    return [line for line in ran.objects if line["kind"] == "difference" and line["code"] != "latency"]


def index_of(run: str, caller: str, call: int, part: str) -> int:
    """The message of a call, by the number that its caller printed."""
    (found,) = [
        each
        for each in workload(f"pairs/{run}").calls()
        if (each.event["worker"], each.event["call"]) == (caller, call)
    ]
    return int((found.request if part == "request" else found.response)["index"])


def accepted(check: Check) -> list[tuple[str, int | None, int | None]]:
    """Code and messages of every difference that may be the first."""
    out = []
    for first in check.first:
        caller, call, part = first["caller"], first["call"], first["part"]
        a = index_of(check.a, caller, call, part) if first["in"] != "b" else None
        b = index_of(check.b, caller, first.get("b_call", call), part) if first["in"] != "a" else None
        out.append((first["code"], a, b))
    return out


@pytest.mark.parametrize("check", DIFFERENT, ids=str)
def test_first_message_of_both_runs(check: Check) -> None:
    first = verdict(diff(check))["first"]
    assert (first["code"], first["a"], first["b"]) in accepted(check)


@pytest.mark.parametrize("check", DIFFERENT, ids=str)
def test_first_message_the_other_way_round(check: Check) -> None:
    first = verdict(mirrored(check))["first"]
    swapped = [(MIRRORED.get(code, code), b, a) for code, a, b in accepted(check)]
    assert (first["code"], first["a"], first["b"]) in swapped


@pytest.mark.parametrize("check", SAME, ids=str)
@pytest.mark.parametrize("way", [diff, mirrored])
def test_same_runs_have_no_differences(check: Check, way: Callable[[Check], Ran]) -> None:
    """But for those that a tolerance covers, and information."""
    found = differences(way(check))
    assert {line["code"] for line in found if not line.get("tolerated")} == set(check.information)


def test_how_far_sums_are_apart() -> None:
    """The owner of the weight compared both orders itself."""
    (check,) = [check for check in DIFFERENT if check.b == "summation"]
    told = verdict(diff(check))["first"]["elements"]
    printed = workload("pairs/summation").of("summation")[0]
    assert (told["differing"], told["max_ulp"]) == (printed["differing"], printed["max_ulp"])
    assert told["max_abs"] == pytest.approx(printed["max_abs"])


@pytest.mark.parametrize("name", sorted({check.b for check in CHECKS} | {"base"}))
def test_a_run_is_the_same_as_itself(name: str) -> None:
    check = Check(name, name, ("--strict",), "same", (), ())
    ran = diff(check)
    assert verdict(ran)["same"]
    assert differences(ran) == []
