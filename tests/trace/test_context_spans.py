"""Spans of contexts: what the workers timed, and in all else what the graphs say, which see every record."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.run import open_run
from rpcinspect.trace.context_spans import ContextSpan, context_spans
from tests.places import recordings
from tests.trace.runs import traced, workload_trace
from tests.truth import CAPTURES

BUNDLED = sorted(path.name for path in CAPTURES.glob("*.pcap*"))


def spans(*paths: Path) -> tuple[ContextSpan, ...]:
    with open_run(*map(str, paths)) as opened:
        return context_spans(opened.session, opened.session.contexts)


def as_the_graph_says(graph: ContextGraph) -> ContextSpan:
    missing = {edge.forward for edge in graph.missing}
    return ContextSpan(
        begin_ns=graph.begin_ns,
        end_ns=graph.end_ns,
        backward_ns=graph.backward_ns,
        expected=tuple(bool(edge.gradients) or edge.forward in missing for edge in graph.edges),
        came=graph.came,
    )


@pytest.mark.parametrize("name", BUNDLED)
def test_spans_are_those_of_the_graphs(name: str) -> None:
    path = CAPTURES / name
    assert spans(path) == tuple(map(as_the_graph_says, traced(path).graphs))


def test_spans_are_those_of_the_graphs_in_pytorchs_tests() -> None:
    seen = 0
    for path in recordings("torch-suite", like="*Autograd*.pcap.gz")[::7]:
        found = spans(path)
        assert found == tuple(map(as_the_graph_says, traced(path).graphs)), path.name
        seen += len(found)
    assert seen > 10


def test_an_edge_without_its_gradient_was_expected() -> None:
    (span,) = spans(CAPTURES / "bwd_boom.pcap.gz")
    (graph,) = workload_trace("bwd_boom").graphs
    assert (span.came, sum(span.expected)) == (2, 4)
    assert len(graph.edges) == 4


def test_contexts_may_be_chosen() -> None:
    path = CAPTURES / "ps_race.pcap.gz"
    with open_run(str(path)) as opened:
        chosen = opened.session.contexts[2:4]
        assert context_spans(opened.session, chosen) == spans(path)[2:4]
        assert context_spans(opened.session, ()) == ()
