"""Outcomes of replays as JSON Lines, held to the contract's text."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rpcinspect.replayer.planning.model import REASONS
from rpcinspect.replayer.playing.outcome import InboundOutcome, ReplayOutcome, TrafficRecording
from rpcinspect.replayer.playing.report import report
from rpcinspect.replayer.workers.live_group import LeafGradient
from rpcinspect.replayer.workers.process_exit import EarlyExit, Exit
from rpcinspect.views.replay.replay_json import replay_lines
from tests.contract import MAYBE_COUNT, MAYBE_TEXT, NUMBER, TYPE, check, count, map_of
from tests.replayer.outcomes import (
    FORM,
    ONE_ULP,
    not_started,
    outcome_of,
    planned,
    refused,
    session_of,
)
from tests.views.replay.test_replay_table import SEARCH

CHAIN = "basic_chain.pcap"
RESULT = {"identical", "tolerance", "different", "failed", "unanswered"}
DIFFERENCE = {"path": str, "captured": lambda _: True, "live": lambda _: True}
STEP = {
    "kind": {"step"},
    "message": count,
    "type": TYPE,
    "role": str,
    "to": str,
    "action": {"send", "answer", "skip"},
    "reason": MAYBE_TEXT,
    "result": (RESULT, None),
    "answer": MAYBE_COUNT,
    "difference": (DIFFERENCE, None),
}
INBOUND = {
    "kind": {"inbound"},
    "captured": MAYBE_COUNT,
    "type": TYPE,
    "from": str,
    "result": RESULT,
    "difference": (DIFFERENCE, None),
}
COUNTS = {"expected": count, "identical": count, "tolerance": count, "different": count}
REPORT = {
    "kind": {"report"},
    "verdict": {"identical", "tolerance", "different", "failed", "refused", "nothing-to-replay"},
    "engine": {"wire", "agent"},
    "device": str,
    "roles": [str],
    "sent": count,
    "answered": count,
    "failed": count,
    "skipped": map_of(count),
    "responses": COUNTS,
    "gradients": COUNTS,
    "wall_s": NUMBER,
    "captured_wall_s": NUMBER,
}
KINDS = {"step": STEP, "inbound": INBOUND, "report": REPORT}


def check_contract(objects: list[dict[str, Any]]) -> None:
    """Step and inbound lines, and lines of our own, then one report line that sums them up."""
    *lines, made = objects
    assert made["kind"] == "report"
    for line in lines:
        assert line["kind"] != "report"
        check(line, KINDS.get(line["kind"], {}), line["kind"])
    check(made, REPORT, "report")
    assert set(made["skipped"]) <= set(REASONS)
    for counts in (made["responses"], made["gradients"]):
        assert counts["expected"] >= counts["identical"] + counts["tolerance"] + counts["different"]
    for step in (line for line in lines if line["kind"] == "step"):
        assert (step["reason"] is not None) == (step["action"] == "skip")
        assert step["action"] != "skip" or step["result"] is None
        assert step["difference"] is None or step["result"] in ("tolerance", "different", "failed")


def lines_of(outcome: ReplayOutcome, error: str | None = None) -> list[dict[str, Any]]:
    objects = [json.loads(line) for line in replay_lines(outcome, report(outcome), error).splitlines()]
    check_contract(objects)
    return objects


def steps_of(objects: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {line["message"]: line for line in objects if line["kind"] == "step"}


def test_everything_identical() -> None:
    objects = lines_of(outcome_of(planned(CHAIN)))
    steps = steps_of(objects)
    assert steps[8]["result"] == steps[11]["result"] == "identical"
    assert (steps[8]["latency_s"], steps[11]["latency_s"]) == (0.0015, None)
    assert steps[0]["result"] is None
    assert steps[0]["reason"].startswith("control: ")
    made = objects[-1]
    assert (made["verdict"], made["roles"], made["sent"], made["answered"]) == (
        "identical",
        ["worker0"],
        5,
        3,
    )
    assert made["gradients"]["expected"] == made["gradients"]["identical"] == 4
    assert made["skipped"] == {"control": 4}


def test_the_first_difference_that_counts_is_told_with_all_that_is_known() -> None:
    plan = planned(CHAIN)
    changed = {
        "result": "different",
        "differences": (replace(ONE_ULP, code="latency"), ONE_ULP, FORM),
        "text": "random numbers are drawn anew",
        "same_payload": False,
    }
    came = InboundOutcome(
        captured=11,
        type="BACKWARD_AUTOGRAD_REQ",
        sender="worker1",
        role="worker0",
        result="different",
        differences=(ONE_ULP,),
    )
    objects = lines_of(outcome_of(plan, [session_of(plan.sessions[0], {11: changed}, [came])]))
    step = steps_of(objects)[11]
    assert step["difference"]["path"] == "tensors[0].elements[5]"
    assert (step["difference"]["captured"], step["difference"]["live"]) == (0.5, 0.5000000596046448)
    assert (step["difference"]["captured_bits"], step["difference"]["live_bits"]) == (
        "0x3f000000",
        "0x3f000001",
    )
    assert step["difference"]["elements"]["max_ulp"] == 1
    assert (step["differences"], step["text"], step["same_payload"]) == (
        3,
        "random numbers are drawn anew",
        False,
    )
    (inbound,) = (line for line in objects if line["kind"] == "inbound")
    assert (inbound["captured"], inbound["from"], inbound["role"]) == (11, "worker1", "worker0")
    assert inbound["difference"] == step["difference"]
    assert objects[-1]["verdict"] == "different"


def test_a_value_that_is_missing_on_one_side_is_null() -> None:
    plan = planned(CHAIN)
    gone = replace(FORM, code="field", a_value=None, b_value=None, text="only told in words")
    changed = {11: {"result": "different", "differences": (gone,)}}
    step = steps_of(lines_of(outcome_of(plan, [session_of(plan.sessions[0], changed)])))[11]
    assert (step["difference"]["captured"], step["difference"]["live"]) == (None, None)


def test_every_run_has_its_lines() -> None:
    plan = planned(CHAIN)
    (session,) = plan.sessions
    runs = [[session_of(session)], [session_of(session, {11: {"result": "different"}})]]
    objects = lines_of(outcome_of(plan, *runs))
    told = [(line["run"], line["result"]) for line in objects if line.get("message") == 11]
    assert told == [(0, "identical"), (1, "different")]
    assert (objects[-1]["runs"], objects[-1]["identical_runs"]) == (2, 1)


def test_refused() -> None:
    *steps, made = lines_of(not_started(refused(CHAIN)))
    assert made["verdict"] == "refused"
    assert [use["name"] for use in made["refused"]] == ["basic_chain.scale"]
    assert len(steps) == 12
    assert {step["result"] for step in steps} == {None}


def test_what_could_not_start() -> None:
    objects = lines_of(not_started(planned(CHAIN)), "import: No module named 'app'")
    assert objects[-1]["verdict"] == "failed"
    assert objects[-1]["failures"] == [
        {"session": None, "run": None, "text": "import: No module named 'app'", "output": {}, "ended": []}
    ]
    assert steps_of(objects)[6]["result"] == "failed"


def test_failures_and_what_workers_wrote() -> None:
    plan = planned(CHAIN)
    ended = EarlyExit(
        who="the live worker worker1",
        worker="worker1",
        exit=Exit(-6, 12_000_000),
        memory_bytes=10**9,
        output="MemoryError\n",
        last_message=6,
    )
    broken = session_of(plan.sessions[0], failure="worker1 has ended", ended=(ended,))
    (failure,) = lines_of(outcome_of(plan, [broken]))[-1]["failures"]
    (told,) = failure.pop("ended")
    assert failure == {
        "session": 0,
        "run": 0,
        "text": "worker1 has ended",
        "output": {"worker1": "MemoryError\n"},
    }
    assert told == {
        "worker": "worker1",
        "signal": "SIGABRT",
        "exit_code": -6,
        "last_message": 6,
        "memory_bytes": 10**9,
        "peak_bytes": 12_000_000,
        "no_memory": True,
        "oom_kills": 0,
        "text": ended.text,
    }


def test_seeds_that_were_looked_for() -> None:
    line = lines_of(outcome_of(planned(CHAIN), searches=(SEARCH,)))[-1]
    (search,) = line["seed_search"]
    assert (search["from"], search["to"], search["tried"], search["out_of_time"]) == (5, 9, 3, True)
    assert search["found"] == [{"worker": "worker1", "seed": 7, "explains": [6, 8]}]
    assert search["missing"] == [{"worker": "worker\x1b2", "message": 9}]
    assert lines_of(outcome_of(planned(CHAIN)))[-1]["seed_search"] == []


def test_a_recording() -> None:
    made = TrafficRecording(path=Path("again.pcap"), failure="no space left")
    line = lines_of(outcome_of(planned(CHAIN), recording=made))[-1]
    assert (line["recording"]["path"], line["recording"]["failure"]) == ("again.pcap", "no space left")
    assert "not what live workers sent to each other" in line["recording"]["not_recorded"]
    assert lines_of(outcome_of(planned(CHAIN)))[-1]["recording"] is None


def test_what_live_workers_hold() -> None:
    plan = planned(CHAIN)
    held = LeafGradient(dtype="float32", shape=(2,), layout="strided", parameter=True, data=b"\0\0\x80?" * 2)
    large = replace(held, data=None)
    session = session_of(plan.sessions[0], gradients={"worker1": {0: (held, large)}})
    (line,) = (line for line in lines_of(outcome_of(plan, [session])) if line["kind"] == "gradients")
    assert (line["worker"], line["context_id"], line["session"]) == ("worker1", 0, 0)
    assert [one["shape"] for one in line["gradients"]] == [[2], [2]]
    assert [one["sha256"] for one in line["gradients"]] == [sha256(b"\0\0\x80?" * 2).hexdigest(), None]


def test_a_session_that_was_not_begun_has_its_lines() -> None:
    plan = planned(CHAIN)
    two = replace(plan, sessions=(plan.sessions[0], replace(plan.sessions[0], number=1)))
    objects = lines_of(outcome_of(two, [session_of(two.sessions[0])], interrupted=True))
    told = {(line["session"], line["result"]) for line in objects if line.get("message") == 11}
    assert told == {(0, "identical"), (1, "failed")}
    assert objects[-1]["interrupted"] is True
