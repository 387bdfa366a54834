"""Statements that only some jobs make: remote references, profiles, device maps, races, transports."""

from __future__ import annotations

import re
from collections import Counter

from tests.statements.told import Statement, Told, shown
from tests.truth import CLOCK_NS


def expect(on: Told, line: Statement) -> None:
    assert on.trace.session.totals.by_type == line["by_type"]


def fetched(on: Told, line: Statement) -> None:
    """The latest fetch before the line brought this value."""
    before = [
        timing
        for story in on.trace.rrefs
        for timing in (on.timings[index] for index in story.fetches)
        if timing.call.caller == line["worker"]
        and timing.total_ns is not None
        and timing.call.begin_ns + timing.total_ns <= line["time_ns"]
    ]
    last = max(before, key=lambda timing: timing.call.begin_ns)
    body = on.run.decoded.messages[last.call.answer or 0]["body"]
    assert re.fullmatch(on.run.pattern(line["value"], line["tensors"]), body["value"])


def holds(on: Told, line: Statement) -> None:
    handle = line["handle"]
    assert line["tensors"] == []
    story = on.stories[tuple(handle["rref_id"])]
    assert story.owner == handle["owner"]
    if handle["fork_id"] is None:
        assert line["worker"] == story.owner
        return
    (fork,) = [fork for fork in story.forks if fork.fork_id == tuple(handle["fork_id"])]
    assert fork.holder == line["worker"]
    assert fork.state == "deleted"


def rref_backward(on: Told, line: Statement) -> None:
    handle = line["handle"]
    story = on.stories[tuple(handle["rref_id"])]
    (index,) = story.backwards
    timing = on.timings[index]
    assert (timing.call.caller, timing.call.callee, timing.call.context) == (
        line["worker"],
        handle["owner"],
        line["context_id"],
    )
    assert story.forks[0].fork_id == tuple(handle["fork_id"])
    assert line["tensors"] == []


def handles_left(on: Told, line: Statement) -> None:
    """How many values a worker owns for others at that moment."""
    now, calls = line["time_ns"], on.trace.calls
    owned = [story for story in on.trace.rrefs if story.owner == line["worker"]]
    begun = [s for s in owned if any(f.begin is not None and calls[f.begin].begin_ns <= now for f in s.forks)]
    ended = [s for s in begun if all(f.deleted is None or calls[f.deleted].begin_ns <= now for f in s.forks)]
    assert line["info"]["num_owner_rrefs"] == len(begun) - len(ended)


def order(on: Told, line: Statement) -> None:
    """Who was let in when: an exchange with the server that was being served."""
    name = {"forward": "forward", "turn": "take_turn", "end": "end_turn"}[line.get("what")]
    served = [
        timing
        for timing in on.timings.values()
        if (timing.call.callee, timing.call.what) == (line["worker"], f"ps_race.{name}")
        and timing.call.begin_ns <= line["time_ns"] <= timing.call.begin_ns + (timing.total_ns or 0)
    ]
    assert line["trainer"] in {timing.call.caller for timing in served}


def step(on: Told, line: Statement) -> None:
    made = [t for t in on.timings.values() if "_script_local_optimizer_step" in t.call.what]
    (its,) = [t for t in made if t.call.context == line["context_id"]]
    assert its.call.caller == line["worker"]
    assert its.call.begin_ns >= line["time_ns"] - CLOCK_NS


def finished(on: Told, line: Statement) -> None:
    made = [t for t in on.timings.values() if "_script_local_optimizer_step" in t.call.what]
    assert sum(t.call.caller == line["trainer"] for t in made) == line["steps"]
    assert not [f for f in on.findings if f.code == "error-response" and line["trainer"] in f.workers]


def case(on: Told, line: Statement) -> None:
    """The calls of this name, by whether they were answered."""
    asked = [
        (event, on.messages.get((event["worker"], event["call"])))
        for event in on.run.of("call", worker=line["worker"])
        if event["args"][:1] == [line["name"]]
    ]
    assert asked
    for event, message in asked:
        if message is None:
            assert not line["answered"]
            assert "meta" in line["error"]["text"]
            continue
        assert on.timings[message["index"]].call.failed == (not line.get("answered", True))
        if not line.get("answered", True):
            on.finding("error-response", shown(line["error"]["text"]), workers=(event["worker"], event["to"]))


def profile(on: Told, line: Statement) -> None:
    """Names, nodes and counts of what ran remotely; the caller's own operators do not travel."""
    arms = on.run.of("profile")
    before = max((event["time_ns"] for event in arms if event["time_ns"] < line["time_ns"]), default=0)
    ours = Counter[tuple[str, int]]()
    for one in on.trace.profiles:
        if before < on.timings[one.request].call.begin_ns < line["time_ns"]:
            ours.update((one.shown(ran), ran.node_id) for ran in one.runs)
    printed = {
        (row["name"], row["node_id"]): row["count"] for row in line["events"] if "#remote_op" in row["name"]
    }
    assert ours == printed
    assert bool(printed) == (line["arm"] != "kineto")


def device_maps(on: Told, line: Statement) -> None:
    maps = line["maps"]
    for one in on.trace.device_maps:
        if one.caller == line["worker"] and one.seen:
            assert [dict(pairs) for pairs in one.seen] == [maps.get(one.callee, {})]
        assert one.messages == ()
    assert not [f for f in on.findings if f.code == "device-map-missing"]


def refused(on: Told, line: Statement) -> None:
    assert on.trace.session.totals.messages == 0
    assert on.trace.latency.timings == ()
    assert {(finding.code, finding.severity) for finding in on.findings} == {("failed-init", "error")}


def visible(on: Told, line: Statement) -> None:
    assert line["mode"] in on.name
    messages, tensors = line["bodies_visible"], line["tensors_visible"]
    assert bool(on.trace.session.totals.messages) == messages
    if tensors:
        assert [f for f in on.findings if f.code == "invisible-transport"] == []
        return
    finding = on.finding("invisible-transport", workers=("worker0", "worker1"))
    assert finding.severity == ("info" if messages else "error")


def site(on: Told, line: Statement) -> None:
    """The call that comes next, if one does."""
    message = on.messages.get((line["worker"], line["call"]))
    if message is None:
        assert line["call"] == len(on.run.of("call", worker=line["worker"]))
    else:
        assert on.timings[message["index"]].call.begin_ns >= line["time_ns"] - CLOCK_NS


def overlap(on: Told, line: Statement) -> None:
    """The last three calls before the line: none is said to be over that was not, nor the other way."""
    before = [e for e in on.run.of("call", worker=line["worker"]) if e["time_ns"] < line["time_ns"]][-3:]
    for event, done in zip(before, line["done"], strict=True):
        timing = on.timings[on.messages[event["worker"], event["call"]]["index"]]
        over = timing.call.begin_ns + (timing.total_ns or 0)
        assert not done or over <= line["time_ns"]


def summation(on: Told, line: Statement) -> None:
    """Printed while `linear` was served."""
    contexts = {timing.call.context for timing in on.timings.values()}
    serving = [list(on.serving(line["worker"], "training.linear", c, line["time_ns"])) for c in contexts]
    assert any(serving)
