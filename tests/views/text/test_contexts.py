"""Contexts, one a line."""

from __future__ import annotations

from rpcinspect.views.text.contexts import show_contexts
from tests.checks.runs import workload_trace
from tests.cli.runner import visible
from tests.truth import workload
from tests.views.graphs import every_kind
from tests.views.opened import file_console


def test_every_context_of_the_workers_has_a_line() -> None:
    console, out = file_console()
    show_contexts(workload_trace("ctx_crowd").graphs, 0, console)
    head, *lines = out.getvalue().splitlines()
    assert head.split()[:2] == ["context", "creator"]
    printed = sorted(event["context_id"] for event in workload("ctx_crowd").of("context"))
    assert [line.split()[0] for line in lines] == [f"0:{context_id}" for context_id in printed]
    assert {line.split()[1] for line in lines} == {"worker0"}
    done = {event["context_id"] for event in workload("ctx_crowd").of("backward-done")}
    assert {int(line.split()[0][2:]) for line in lines if "no pass" not in line} == done


def test_jobs_are_told_apart() -> None:
    console, out = file_console()
    show_contexts([every_kind(), every_kind()], 0, console)
    assert not out.getvalue().startswith("job")
    assert visible(out.getvalue())
    assert "2 of 3" in out.getvalue()


def test_no_context_is_an_answer() -> None:
    console, out = file_console()
    show_contexts([], 0, console)
    assert out.getvalue() == "no autograd context was seen\n"
