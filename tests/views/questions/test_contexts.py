"""Contexts, one a line."""

from __future__ import annotations

from rpcinspect.views.questions.contexts import QUESTION
from tests.checks.runs import workload_trace
from tests.cli.runner import visible
from tests.truth import workload
from tests.views.graphs import every_kind, graph
from tests.views.opened import altered, told


def test_every_context_of_the_workers_has_a_line() -> None:
    head, *lines = told(QUESTION.show(workload_trace("ctx_crowd"), False))
    assert head.split()[:2] == ["context", "creator"]
    printed = sorted(event["context_id"] for event in workload("ctx_crowd").of("context"))
    assert [line.split()[0] for line in lines] == [f"0:{context_id}" for context_id in printed]
    assert {line.split()[1] for line in lines} == {"worker0"}
    done = {event["context_id"] for event in workload("ctx_crowd").of("backward-done")}
    assert {int(line.split()[0][2:]) for line in lines if "no pass" not in line} == done


def test_jobs_are_told_apart() -> None:
    run = workload_trace("ctx_crowd")
    lines = told(QUESTION.show(altered(run, graphs=[every_kind(), every_kind()]), False))
    assert "job" not in lines[0].split()
    assert visible("\n".join(lines))
    assert "2 of 3" in lines[1]
    head, first, second = told(QUESTION.show(altered(run, graphs=[graph(job=1), graph(job=2)]), False))
    assert head.split()[1] == "job"
    assert [line.split()[1] for line in (first, second)] == ["1", "2"]


def test_no_context_is_an_answer() -> None:
    run = altered(workload_trace("ctx_crowd"), graphs=())
    assert told(QUESTION.show(run, False)) == ["no autograd context was seen"]
