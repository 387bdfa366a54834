"""Every line of every truth file of the bundled captures is held against the answers to the run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.statements import COMPARE
from tests.statements.told import HEAD, UNSEEN, Statement, told
from tests.test_workloads import ALL, INVISIBLE
from tests.truth import CAPTURES, workload

SEEN_ANYWAY = {"worker", "visible"}
"""What the store and the handshakes tell of a job whose messages pass through shared memory."""


@pytest.mark.parametrize("name", ALL)
def test_every_statement_of_a_worker_is_an_answer(name: str) -> None:
    on = told(name)
    assert on.run.events
    for event in on.run.events:
        if name == INVISIBLE and event["event"] not in SEEN_ANYWAY:
            continue
        line = Statement(event)
        COMPARE[event["event"]](on, line)
        assert line.left() == set(), event


def test_nothing_is_told_of_what_cannot_be_seen() -> None:
    on = told(INVISIBLE)
    assert {e["event"] for e in on.run.events} > SEEN_ANYWAY
    trace = on.trace
    assert (trace.graphs, trace.rrefs, trace.profiles, trace.device_maps) == ((), (), (), ())
    assert trace.latency.timings == ()
    assert [finding.code for finding in on.findings] == ["invisible-transport"]


def test_what_is_left_out_is_there_and_is_not_the_head() -> None:
    fields = {
        (event["event"], key)
        for name in ALL
        for event in workload(name).events
        for key in event.keys() - HEAD
    }
    assert fields >= UNSEEN.keys()


def kinds_and_fields() -> list[tuple[str, str]]:
    """Every field of every kind of statement that an answer can know."""
    events = [json.loads(line.removeprefix("TRUTH ")) for name in ALL for line in lines_of(name)]
    found = {(event["event"], key) for event in events for key in event.keys() - HEAD}
    return sorted(found - UNSEEN.keys())


def lines_of(name: str) -> list[str]:
    return (CAPTURES / f"{name}.truth").read_text().splitlines()


def other(value: Any) -> Any:
    """Something else of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1000
    if isinstance(value, str):
        return value.swapcase() if value.swapcase() != value else f"{value}?"
    if isinstance(value, list):
        return [other(value[0]), *value[1:]] if value else [1]
    if isinstance(value, dict):
        return {key: other(item) for key, item in value.items()} or {"worker1": {"cpu": "cpu"}}
    return 99


@pytest.mark.parametrize(("kind", "field"), kinds_and_fields())
def test_a_statement_that_says_something_else_is_noticed(kind: str, field: str) -> None:
    """Of the jobs that say it: in one at least, the first line that does."""
    for name in ALL:
        lines = [event for event in workload(name).of(kind) if event.get(field) is not None]
        for event in lines[:3] if name != INVISIBLE else []:
            line = Statement(event | {field: other(event[field])})
            try:
                COMPARE[kind](told(name), line)
            except Exception:
                return
    raise AssertionError(f"{field} of {kind} is not compared")


def test_a_field_that_nobody_looks_at_is_found() -> None:
    line = Statement({"worker": "worker0", "event": "hangs", "context_id": 0, "hangs": True})
    assert line["hangs"]
    assert line.left() == {"context_id"}
