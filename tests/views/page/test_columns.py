"""The messages of a page as columns, against the lines that jsonl has of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rpcinspect.fields.phrases import packed
from rpcinspect.views.page.columns import (
    FAILED,
    KINDS,
    MAX_TEXT,
    OPEN,
    REQUEST,
    WorkerLanes,
    columns_of,
)
from tests.checks.runs import workload_trace
from tests.diff.stories import Story
from tests.truth import Workload
from tests.views.page.pages import story_run

NAMES = ["basic_chain", "bwd_boom", "ps_race", "rref_relay", "reinit", "profiled_legacy"]


@pytest.mark.parametrize("name", NAMES)
def test_columns_say_what_the_lines_say(name: str) -> None:
    run = workload_trace(name)
    lanes = WorkerLanes(run.session)
    contexts = {(graph.job, graph.context_id): n for n, graph in enumerate(run.graphs)}
    found = columns_of(run, lanes, range(len(run.messages)), contexts)
    columns, lines = found["columns"], Workload(name).decoded.messages
    assert found["count"] == len(lines)
    assert {len(column) for column in columns.values()} == {len(lines)}
    time = int(found["start_ns"])
    for place, line in enumerate(lines):
        at = {name: column[place] for name, column in columns.items()}
        time += at["time"]
        assert time == line["time_ns"]
        assert time + at["took"] == line["end_time_ns"]
        assert found["lanes"][at["src"]].startswith(line["src"])
        assert found["lanes"][at["dst"]].startswith(line["dst"])
        assert found["types"][at["type"]] == line["type"]
        assert found["types"][at["body"]] == line["body"]["type"]
        assert bool(at["flags"] & REQUEST) == line["request"]
        assert (KINDS[at["kind"]] == "housekeeping") == line["housekeeping"]
        if line["answers"] is not None:
            assert place + at["partner"] == line["answers"]
            assert line["answers"] + columns["partner"][line["answers"]] == place
        error = line["body"].get("error")
        assert bool(at["flags"] & FAILED) == (error is not None)
        envelopes = [one for one in line["envelopes"] if "context_id" in one]
        if envelopes:
            context = run.graphs[at["context"] - 1]
            assert context.context_id == envelopes[0]["context_id"]
            assert found["ids"][at["edge"] - 1] == packed(envelopes[0]["autograd_message_id"])
            assert KINDS[at["kind"]] == "forward"
        if line["request"] and line["body"].get("function"):
            function = line["body"]["function"].removeprefix("__torch__.")  # no word of a person's
            assert found["functions"][at["function"] - 1] == function


def test_answers_are_of_their_requests_kind() -> None:
    story = Story()
    story.iteration(1)
    story.ask("app.plain", result=None)
    run = story_run(story)
    lanes = WorkerLanes(run.session)
    found = columns_of(run, lanes, range(len(run.messages)), {(0, 0): 0})
    columns = found["columns"]
    kinds = [KINDS[kind] for kind in columns["kind"]]
    assert kinds == ["forward"] * 4 + ["backward"] * 2 + ["housekeeping"] * 2 + ["call"]
    assert [*columns["context"]] == [1] * 8 + [0]
    assert [flags & OPEN for flags in columns["flags"]] == [0] * 8 + [OPEN]
    assert [*columns["partner"]] == [1, -1] * 4 + [0]


def test_only_what_is_shown_but_with_its_number() -> None:
    run = workload_trace("basic_chain")
    found = columns_of(run, WorkerLanes(run.session), (3, 7, 20), {})
    assert [*found["columns"]["index"]] == [3, 4, 13]
    assert found["count"] == 3
    assert int(found["start_ns"]) == min(run.session.messages.time_ns)
    assert len(found["texts"]) <= 6


def test_equal_texts_are_stored_once() -> None:
    story = Story()
    for _ in range(50):
        story.ask("app.f", 1, 1)
    run = story_run(story)
    found = columns_of(run, WorkerLanes(run.session), range(len(run.messages)), {})
    assert len(found["texts"]) == 2
    assert found["functions"] == ["app.f"]


def test_long_texts_are_cut() -> None:
    story = Story()
    story.ask("app." + "f" * 1000)
    run = story_run(story)
    found = columns_of(run, WorkerLanes(run.session), range(2), {})
    assert max(map(len, found["texts"])) == MAX_TEXT


def test_workers_of_two_jobs_have_lanes_of_their_own() -> None:
    run = workload_trace("ps_race")
    assert WorkerLanes(run.session).labels == ["worker0", "worker1", "worker2", "worker3"]
    session = replace(run.session, jobs=tuple(number % 2 for number in range(len(run.session.jobs))))
    lanes = WorkerLanes(session)
    assert {label.rpartition(" (job ")[2] for label in lanes.labels} == {"0)", "1)"}
    assert len(set(lanes.labels)) == len(lanes.labels)
    for row in range(len(run.messages)):
        source, _ = lanes.of(row)
        job = session.jobs[session.messages.pipe[row]]
        assert lanes.labels[source] == f"{session.source(row)} (job {job})"
    assert WorkerLanes(run.session).number(0, "nobody") is None
