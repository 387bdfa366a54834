"""A narrowed run: answers are those of the whole run, without what no picked message takes part in."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rpcinspect.run.narrowed import Narrowed
from rpcinspect.run.run import Run
from rpcinspect.trace.touched import touched
from tests.trace.runs import workload_trace

NAMES = ("basic_chain", "bwd_boom", "rref_relay", "ps_race", "profiled_legacy", "devmap_cpu")


def narrowed(run: Run, indexes: Iterable[int]) -> Narrowed:
    """By these messages."""
    rows = bytearray(len(run.messages))
    for index in indexes:
        rows[run.messages[index].row] = 1
    return Narrowed(run, bytes(rows), touched(run.session, bytes(rows)))


@pytest.mark.parametrize("name", NAMES)
def test_all_messages_leave_all_that_has_any(name: str) -> None:
    run = workload_trace(name)
    part = narrowed(run, range(len(run.messages)))
    assert part.messages == set(range(len(run.messages)))
    assert part.requests == {call.index for call in run.exchanges.calls}
    assert part.graphs == run.graphs
    assert part.latency == run.latency
    assert part.profiles == run.profiles
    assert part.ledger == run.ledger
    assert part.device_maps == run.device_maps
    assert {end.pipe for d in part.closings.departures for end in d.pipes} == {
        record.tp.pipe.number for record in run.messages
    }


@pytest.mark.parametrize("name", NAMES)
def test_no_message_leaves_nothing(name: str) -> None:
    run = workload_trace(name)
    part = narrowed(run, ())
    assert part.messages == part.requests == frozenset()
    assert part.graphs == part.profiles == part.ledger == part.device_maps == part.latency.timings == ()
    assert part.latency.functions == part.latency.pairs == ()
    assert part.closings.pipes == 0
    for graph in run.graphs:
        assert part.critical_path(graph) == ()


def test_an_answer_stands_for_its_exchange() -> None:
    run = workload_trace("ps_race")
    for call in run.exchanges.calls:
        for index in (call.index, call.answer):
            assert index is not None
            part = narrowed(run, [index])
            assert part.messages == {index}
            assert part.requests == {call.index}
            (timing,) = part.latency.timings
            assert timing == next(t for t in run.latency.timings if t.request == call.index)


def test_a_graph_keeps_all_but_what_is_shown_of_it() -> None:
    run = workload_trace("bwd_boom")
    (graph,) = run.graphs
    first = graph.edges[0].forward
    (shown,) = narrowed(run, [first]).graphs_of(graph.context_id)
    assert (shown.edges, shown.passing, shown.missing) == (graph.edges, graph.passing, graph.missing)
    assert shown.shown == {first}
    assert [shown.shows_edge(edge) for edge in shown.edges] == [edge.forward == first for edge in graph.edges]
    assert graph.shown is None
    assert all(map(graph.shows, graph.messages))


def test_parts_of_a_critical_path_are_those_of_the_picked_exchanges() -> None:
    run = workload_trace("bwd_boom")
    (graph,) = run.graphs
    whole = run.critical_path(graph)
    request = next(part.request for part in whole if part.request is not None)
    part = narrowed(run, [request]).critical_path(graph)
    assert part == tuple(segment for segment in whole if segment.request == request)
    assert 0 < len(part) < len(whole)


def test_who_straggles_is_judged_by_the_whole_run() -> None:
    run = workload_trace("ps_race")
    one = run.latency.stragglers[0]
    assert narrowed(run, [one.request]).latency.stragglers == (one,)
    usual = next(t.request for t in run.latency.timings if not t.control)
    assert usual not in {one.request for one in run.latency.stragglers}
    assert narrowed(run, [usual]).latency.stragglers == ()


def test_when_a_worker_left_and_who_was_first_is_of_the_whole_run() -> None:
    run = workload_trace("ps_race")
    for departure in run.closings.departures:
        end = departure.pipes[-1]
        index = next(i for i, record in enumerate(run.messages) if record.tp.pipe.number == end.pipe)
        closings = narrowed(run, [index]).closings
        (part,) = closings.departures
        assert (part.worker, part.time_ns, part.pipes) == (departure.worker, departure.time_ns, (end,))
        assert (closings.first, closings.open_pipes, closings.pipes) == (run.closings.first, 0, 1)
