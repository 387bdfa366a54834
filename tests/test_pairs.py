"""The pairs are what they claim: by the prints of the workers, two runs part at the place of their switch.

Nothing here reads a capture; test_workloads.py compares each one with its truth.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.pairs.expected import Check, Json, checks
from tests.truth import CAPTURES

CHECKS = checks()
PLAIN = [check for check in CHECKS if not check.flags]
SAME_CALLS = {"again", "device_map"}
"""What the workers of these printed of their calls is the same; the device map travels in envelopes only."""


def events_of(name: str) -> list[Json]:
    lines = (CAPTURES / "pairs" / f"{name}.truth").read_text().splitlines()
    return sorted(
        (json.loads(line.removeprefix("TRUTH ")) for line in lines), key=lambda event: event["time_ns"]
    )


def without_ids(value: Any) -> Any:
    """A printed value without the ids that every run has of its own."""
    if isinstance(value, dict):
        return {
            key: without_ids(part)
            for key, part in value.items()
            if key not in ("rref_id", "fork_id", "storage")
        }
    return [without_ids(part) for part in value] if isinstance(value, list) else value


def said(event: Json) -> Any:
    """What a call or an answer says, without place, time and context."""
    skip = ("worker", "n", "time_ns", "thread", "call", "context_id")
    args = event.get("args", [])
    if event.get("function", "").endswith("_local_optimizer_step"):
        args = args[:1]  # the context's id is an argument, too
    return without_ids({key: value for key, value in event.items() if key not in skip} | {"args": args})


def spoken(name: str) -> dict[tuple[str, int, str], Any]:
    """Calls and answers of a run in the order of time, by worker, number of the call and part."""
    parts = {"call": "request", "answer": "answer"}
    return {
        (event["worker"], event["call"], parts[event["event"]]): said(event)
        for event in events_of(name)
        if event["event"] in parts
    }


def parting(a: str, b: str) -> tuple[str, int, str] | None:
    """The first call or answer that the other run hasn't, or has otherwise, at the same place."""
    one, other = spoken(a), spoken(b)
    found = [key for key in one if other.get(key) != one[key]]
    return found[0] if found else next((key for key in other if key not in one), None)


def test_every_switch_has_its_checks() -> None:
    names = {path.stem for path in (CAPTURES / "pairs").glob("*.truth")}
    assert {check.b for check in CHECKS} == names - {"base"}
    assert {check.b for check in PLAIN} == names - {"base"}
    for check in CHECKS:
        assert bool(check.first) == (check.verdict == "different")


@pytest.mark.parametrize("check", PLAIN, ids=str)
def test_the_runs_part_at_the_expected_call(check: Check) -> None:
    place = parting(check.a, check.b)
    if check.b in SAME_CALLS:
        assert place is None
        return
    if check.b.startswith("order_"):
        one, other = (
            Counter(json.dumps(part) for part in spoken(name).values()) for name in (check.a, check.b)
        )
        assert one == other  # the same calls with the same answers
        assert place is not None
        return
    assert place in [(first["caller"], first["call"], first["part"]) for first in check.first]


@pytest.mark.parametrize("check", [check for check in CHECKS if check.first], ids=str)
def test_the_first_message_is_a_call_that_was_made(check: Check) -> None:
    for first in check.first:
        run = check.b if first["in"] == "b" else check.a
        (call,) = [
            event
            for event in events_of(run)
            if event["event"] == "call"
            and (event["worker"], event["call"]) == (first["caller"], first["call"])
        ]
        answer = first["part"] == "answer"
        ends = (call["to"], call["worker"]) if answer else (call["worker"], call["to"])
        assert (first["src"], first["dst"]) == ends
        assert first["function"] == call["function"]
        assert first["type"].startswith("FORWARD_AUTOGRAD") == (call["context_id"] is not None)
        assert first["type"].endswith(("_RET", "_RESP")) == answer


@pytest.mark.parametrize("check", PLAIN, ids=str)
def test_the_job_says_where_its_switch_bites(check: Check) -> None:
    """Both runs print the place, and only the changed one says that it is changed."""
    sites = [[e for e in events_of(name) if e["event"] == "site"] for name in (check.a, check.b)]
    assert not any(site["changed"] for site in sites[0])
    changed = [site for site in sites[1] if site["changed"]]
    assert {site["switch"] for site in changed} == ({check.b} if check.b != "again" else set())
    for first in check.first:
        printed = sites[first["in"] == "b"]
        own = [site for site in (*printed, *changed) if site["switch"] == check.b]
        if first["in"] != "b" or check.b != "renamed":
            assert (first["caller"], first["call"], first["part"]) in [
                (site["worker"], site["call"], site["part"]) for site in own
            ]


def test_overlapping_calls_overlap() -> None:
    for name in {check.b for check in CHECKS} | {"base"}:
        overlaps = [event["done"] for event in events_of(name) if event["event"] == "overlap"]
        assert len(overlaps) >= 2
        assert all(done == [False, False, False] for done in overlaps)


def test_the_other_sum_is_close() -> None:
    """So close that a tolerance of a checked line covers it, and further apart than a few steps."""
    sums = [event for event in events_of("summation") if event["event"] == "summation"]
    assert len(sums) == 3
    assert all(event["differing"] > 0 and event["max_ulp"] > 4 and event["max_abs"] < 1e-6 for event in sums)


def test_the_map_is_set_on_one_worker() -> None:
    maps = {e["worker"]: e["maps"] for e in events_of("device_map") if e["event"] == "device-maps"}
    assert maps == {"worker0": {"worker1": {"cpu": "cpu"}}, "worker1": {}, "worker2": {}}
    assert all(not event["maps"] for event in events_of("base") if event["event"] == "device-maps")
