"""Statements of workers and of their calls."""

from __future__ import annotations

import re

from tests.statements.told import Statement, Told, cause_of, shown
from tests.truth import CLOCK_NS, same_function


def worker(on: Told, line: Statement) -> None:
    group = [w for w in on.trace.session.workers if w.group == line["group"]]
    assert (line["name"], line["id"]) in {(w.name, w.id) for w in group}
    assert len(group) == line["world_size"]
    assert line["name"] == line["worker"]


def control(on: Told, line: Statement) -> None:
    its = [t for t in on.timings.values() if t.call.control and t.call.callee == line["worker"]]
    printed = on.run.of("control", worker=line["worker"], function=line["function"])
    assert sum(t.call.what == line["function"] for t in its) == len(printed) > 0


def call(on: Told, line: Statement) -> None:
    if any(tensor["device"] == "meta" for tensor in line["tensors"]):
        assert (line["worker"], line["call"]) not in on.messages  # refused before it is sent
        assert (line["kind"], line["to"], line["function"]) == ("rpc_sync", "worker1", "dtype_zoo.echo")
        assert (line["context_id"], line["args"][0], line["kwargs"]) == (None, "meta", {})
        return
    message = on.messages[line["worker"], line["call"]]
    timing = on.timings[message["index"]]
    assert (timing.call.caller, timing.call.callee, timing.call.context) == (
        line["worker"],
        line["to"],
        line["context_id"],
    )
    assert same_function(line["function"], {"function": timing.call.function})
    assert timing.call.begin_ns >= line["time_ns"] - CLOCK_NS
    assert not timing.call.control
    assert on.run.same_arguments(line, message["body"], forks=False)
    made = [story for story in on.trace.rrefs if story.created == message["index"]]
    assert len(made) == (line["kind"] == "remote")


def answer(on: Told, line: Statement) -> None:
    (asked,) = on.run.of("call", worker=line["worker"], call=line["call"])
    message = on.messages.get((line["worker"], line["call"]))
    if message is None:
        assert line["error"]
        assert (asked["function"], asked["args"][0]) == ("dtype_zoo.echo", "meta")
        return
    timing = on.timings[message["index"]]
    if asked["kind"] == "remote":
        handle = line["value"]
        assert line["tensors"] == []
        story = on.stories[tuple(handle["rref_id"])]
        assert (story.owner, story.creator, story.created) == (
            handle["owner"],
            line["worker"],
            message["index"],
        )
        assert (story.forks[0].fork_id, story.forks[0].holder) == (tuple(handle["fork_id"]), line["worker"])
        return
    if timing.call.answer is None:
        assert "tensors" not in line  # the connection broke
        on.finding(
            "unanswered-request", f"#{timing.call.index}", workers=(timing.call.caller, timing.call.callee)
        )
        assert line["error"]["type"] == "builtins.RuntimeError"
        return
    assert timing.call.failed == ("error" in line)
    assert (timing.total_ns or 0) <= line["time_ns"] - asked["time_ns"] + CLOCK_NS
    if "error" in line:
        cause = on.finding("error-response", workers=(timing.call.caller, timing.call.callee))
        assert timing.call.answer in cause.messages
        assert shown(cause_of(line["error"]["text"])) in cause.text
        return
    body = on.run.decoded.messages[timing.call.answer]["body"]
    assert re.fullmatch(on.run.pattern(line["value"], line["tensors"]), body["value"])


def run(on: Told, line: Statement) -> None:
    served = list(on.serving(line["worker"], line["function"], line["context_id"], line["time_ns"]))
    bodies = [on.run.decoded.messages[timing.call.index]["body"] for timing in served]
    assert any(on.run.same_arguments(line, body, forks=True) for body in bodies)


def ran(on: Told, line: Statement) -> None:
    began = [
        event
        for event in on.run.of("run", worker=line["worker"], thread=line["thread"], function=line["function"])
        if event["n"] < line["n"]
    ]
    served = list(on.serving(line["worker"], line["function"], began[-1]["context_id"], line["time_ns"]))
    answers = [on.run.decoded.messages[t.call.answer] for t in served if t.call.answer is not None]
    if "error" in line:
        failed = [m for m in answers if m["body"].get("error")]
        assert any(m["body"]["error"]["text"] == line["error"]["text"] for m in failed)
        assert any(m["body"]["error"]["type"] == line["error"]["type"] for m in failed)
        on.finding("error-response", cause_of(line["error"]["text"]), workers=(line["worker"],))
        return
    value, tensors = line["value"], line["tensors"]
    if (on.name, line["function"]) == ("dtype_zoo.echo", "dtype_zoo") or not answers:
        assert served == []
        return
    pattern = on.run.pattern(value, tensors)
    kept = [m for m in answers if m["body"]["type"] in ("REMOTE_RET", "EXCEPTION")]  # the value stays there
    assert kept or any(re.fullmatch(pattern, m["body"]["value"]) for m in answers)
