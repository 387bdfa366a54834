"""Spans of contexts, against what every record says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.rpc.questions import PASSES, context_of
from rpcinspect.run.run import RunModel, open_run
from rpcinspect.session.contexts import ContextSpan, context_spans
from tests.checks.runs import traced, workload_trace
from tests.places import recordings
from tests.truth import CAPTURES

BUNDLED = sorted(path.name for path in CAPTURES.glob("*.pcap*"))


def spans(*paths: Path) -> tuple[ContextSpan, ...]:
    with open_run(*map(str, paths)) as opened:
        return context_spans(opened.session, opened.session.contexts)


def as_records_say(run: RunModel) -> Iterator[ContextSpan]:
    """Of each context of a run, from what every record says of itself."""
    calls, records = run.calls, run.messages
    answers = {call.answer: call.index for call in calls.values()}
    for context in run.contexts:
        jobs = run.session.jobs
        its = [
            index
            for index, record in enumerate(records)
            if context_of(records[answers.get(index, index)]) == context.context_id
            or context_of(record) == context.context_id
            if jobs[record.tp.pipe.number] == context.job
        ]
        over = [index for index in its if answers.get(index, index) in context.cleanup]
        working = [records[index] for index in its if index not in over] or [records[index] for index in its]
        begun = [records[i].tp.first_ns for i in its if i in calls and calls[i].kind in PASSES]
        first = min(begun, default=None)
        before = [first is not None and records[edge.forward].tp.first_ns < first for edge in context.edges]
        yield ContextSpan(
            messages=tuple(its),
            begin_ns=min((record.tp.first_ns for record in working), default=0),
            end_ns=max((record.tp.last_ns for record in working), default=0),
            backward_ns=first,
            waited_for=tuple(
                bool(e.backward) or there for e, there in zip(context.edges, before, strict=True)
            ),
            came=sum(bool(edge.backward) for edge in context.edges),
        )


@pytest.mark.parametrize("name", BUNDLED)
def test_spans_are_those_of_the_records(name: str) -> None:
    path = CAPTURES / name
    assert spans(path) == tuple(as_records_say(traced(path)))


def test_spans_are_those_of_the_records_in_pytorchs_tests() -> None:
    seen = 0
    for path in recordings("torch-suite", like="*Autograd*.pcap.gz")[::7]:
        found = spans(path)
        assert found == tuple(as_records_say(traced(path))), path.name
        seen += len(found)
    assert seen > 10


def test_an_edge_without_its_gradient_was_expected() -> None:
    (span,) = spans(CAPTURES / "bwd_boom.pcap.gz")
    (graph,) = workload_trace("bwd_boom").graphs
    assert (span.came, span.expected) == (2, 4)
    assert len(graph.edges) == 4


def test_contexts_may_be_chosen() -> None:
    path = CAPTURES / "ps_race.pcap.gz"
    with open_run(str(path)) as opened:
        chosen = opened.session.contexts[2:4]
        assert context_spans(opened.session, chosen) == spans(path)[2:4]
        assert context_spans(opened.session, ()) == ()
