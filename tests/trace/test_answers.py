"""The way in: every answer is there for every capture, and is made once."""

from __future__ import annotations

from rpcinspect.opened import open_session
from rpcinspect.trace.answers import trace
from tests.places import recorded
from tests.trace.runs import workload_trace
from tests.truth import capture_of


def test_an_answer_is_made_once() -> None:
    run = workload_trace("basic_chain")
    assert run.graphs is run.graphs
    assert run.latency is run.latency
    assert run.exchanges is run.exchanges


def test_a_capture_without_messages_has_empty_answers() -> None:
    with open_session(str(recorded("torch/chan_shm.pcap"))) as opened:
        run = trace(opened.session, opened.messages())
    assert opened.session.totals.messages == 0
    assert run.graphs == ()
    assert run.latency.timings == ()


def test_graphs_are_the_sessions_contexts() -> None:
    with open_session(str(capture_of("reinit"))) as opened:
        run = trace(opened.session, opened.messages())
        contexts = opened.session.contexts
    assert [(g.job, g.context_id) for g in run.graphs] == [(c.job, c.context_id) for c in contexts]
    for graph, context in zip(run.graphs, contexts, strict=True):
        assert [e.forward for e in graph.edges] == [e.forward for e in context.edges]
        assert [tuple(g.message for g in e.gradients) for e in graph.edges] == [
            e.backward for e in context.edges
        ]
