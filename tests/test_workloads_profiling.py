"""The recorded workload D02: calls under the legacy profiler, and what it tells the user of them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.truth import CLOCK_NS, Json, workload


def test_profiled_calls_are_wrapped_outermost() -> None:
    run = workload("profiled_legacy")
    stacks = [[e["type"] for e in c.request["envelopes"]] for c in run.calls()]
    plain, nested = ["RUN_WITH_PROFILING_REQ"], ["RUN_WITH_PROFILING_REQ", "FORWARD_AUTOGRAD_REQ"]
    assert stacks == [plain] * 4 + [nested] * 2 + [[]]  # the last runs under the Kineto profiler
    backs = [[e["type"] for e in c.response["envelopes"]] for c in run.calls()]
    assert backs == [[kind.replace("REQ", "RESP") for kind in stack] for stack in stacks]
    numbers = [c.request["envelopes"][0]["profiling_id"] for c in run.calls()[:6]]
    assert numbers == [[0, i] for i in range(6)]
    assert numbers == [c.response["envelopes"][0]["profiling_id"] for c in run.calls()[:6]]
    configs = [c.request["envelopes"][0]["config"] for c in run.calls()[:6]]
    off, on = (
        {"state": 1, "report_input_shapes": flag, "profile_memory": flag} for flag in (False, True)
    )  # 1: ProfilerState::CPU
    assert configs == [off] * 4 + [on] * 2


@pytest.mark.parametrize("arm", ["plain", "over autograd", "kineto"])
def test_profile_events_are_those_the_user_sees(arm: str) -> None:
    run = workload("profiled_legacy")
    (event,) = run.of("profile", arm=arm)
    seen = {
        (row["name"], row["node_id"]): row["count"] for row in event["events"] if "#remote_op" in row["name"]
    }
    started = max((e["time_ns"] for e in run.of("profile") if e["time_ns"] < event["time_ns"]), default=0)
    told = Counter[tuple[str, int]]()
    for call in run.calls():
        if not started < call.event["time_ns"] < event["time_ns"]:
            continue
        for envelope in call.response["envelopes"]:
            who = call.event["function"].removeprefix("profiled_legacy.")
            prefix = f"rpc_sync#{who}({call.event['worker']} -> {call.event['to']})#remote_op: "
            told.update((prefix + name, node) for name, node in as_shown(envelope.get("events", [])))
    assert told == seen


def as_shown(events: list[Json]) -> list[tuple[str, int]]:
    """The operators that `function_events` lists for a call's events.

    torch drops a push that repeats the one before it and everything else under that handle: of an operator
    that calls itself one is left, of one whose pushes are doubled under one handle nothing.
    """
    dropped: set[int] = set()
    opened: dict[int, tuple[str, int]] = {}
    shown = []
    before: tuple[str, str, int] | None = None
    for event in events:
        key, this = event["handle"], (event["kind"], event["name"], event["node_id"])
        if key in dropped:
            continue
        if event["kind"] == "push":
            if this == before:
                dropped.add(key)
                continue
            opened[key] = (event["name"], event["node_id"])
        elif event["kind"] == "pop":
            shown.append(opened.pop(key))
        before = this
    return shown


def test_profile_events_are_well_formed() -> None:
    run = workload("profiled_legacy")
    lists = [
        e["events"]
        for m in run.decoded.messages
        for e in m["envelopes"]
        if e["type"].endswith("RESP")
        if "events" in e
    ]
    assert len(lists) == 6
    for events in lists:
        assert [e["name"] for e in events if e["kind"] == "mark"] == ["__start_profile", "__stop_profile"]
        kinds = Counter(e["kind"] for e in events)
        assert kinds["push"] == kinds["pop"]
        times = [e["cpu_ns"] for e in events]
        assert times == sorted(times)
        assert not any(e["cuda_recorded"] for e in events)
    # shapes and allocations only where the user asked for them; x and y have 4 float32
    shapes = [[e["shapes"] for e in events if e["kind"] == "push"] for events in lists]
    assert all(shape == [] for told in shapes[:4] for shape in told)
    assert shapes[5] == [[[4], [4]]]
    assert [[e["cpu_memory"] for e in events if e["kind"] == "alloc"] for events in lists[4:]] == [
        [16, 16],
        [16],
    ]


def test_profiled_times_lie_inside_the_call() -> None:
    for call in workload("profiled_legacy").calls()[:6]:
        times = [e["cpu_ns"] for envelope in call.response["envelopes"] for e in envelope.get("events", [])]
        assert call.event["time_ns"] < min(times)
        assert max(times) < call.response["end_time_ns"] + CLOCK_NS
