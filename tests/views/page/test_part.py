"""What of a run a page shows."""

from __future__ import annotations

from rpcinspect.trace.touched import Touched
from rpcinspect.views.page.part import part_of
from rpcinspect.views.shown import Shown
from tests.trace.runs import workload_trace


def test_everything_without_a_filter() -> None:
    run = workload_trace("ps_race")
    part = part_of(run, None)
    assert part.filter is None
    assert part.indexes == tuple(range(len(run.messages)))
    assert part.graphs == run.graphs != ()
    assert part.findings == run.session.findings != ()
    assert part.answers is run
    assert part.hidden_findings == 0


def test_what_the_picked_messages_take_part_in() -> None:
    run = workload_trace("ps_race")
    graph, finding = run.graphs[1], run.session.findings[0]
    wanted = {finding.messages[0], graph.edges[0].forward}
    rows = bytearray(len(run.messages))
    for index in wanted:
        rows[int(run.session.order[index])] = 1
    touched = Touched(frozenset({(graph.job, graph.context_id)}), frozenset({(0, run.rrefs[2].rref_id)}))
    part = part_of(run, Shown("anything", bytes(rows), touched))
    assert part.filter == "anything"
    assert set(part.indexes) == wanted
    assert [(one.context_id, one.shown) for one in part.graphs] == [
        (graph.context_id, frozenset({graph.edges[0].forward}))
    ]
    assert part.answers.rrefs == (run.rrefs[2],)
    assert len(part.answers.latency.timings) <= 2 < len(run.latency.timings)
    assert finding in part.findings
    for one in part.findings:
        assert not one.messages or wanted & set(one.messages)
    assert part.hidden_findings == len(run.session.findings) - len(part.findings) > 0
