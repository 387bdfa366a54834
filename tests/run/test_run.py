"""The programmer's way in: `rpcinspect.open`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import rpcinspect
from rpcinspect.errors import CaptureError
from rpcinspect.run.participation import participation_of
from rpcinspect.run.run import RunModel, open_run
from tests.checks.runs import workload_trace
from tests.decoded import decode
from tests.places import recorded
from tests.truth import capture_of


def test_messages_come_in_the_order_of_time_with_their_bytes(repo: Path) -> None:
    path = repo / "captures" / "basic_chain.pcap"
    told = decode(path).messages
    with open_run(str(path)) as opened:
        assert len(opened) == len(told)
        assert [r.rpc.message.id for r in opened.messages] == [m["id"] for m in told]
        for index, line in enumerate(told):
            record = opened.messages[index]
            assert opened.session.index[record.row] == index
            for tensor, its in zip(record.tp.tensors, record.tp.descriptor.tensors, strict=True):
                assert tensor.extent is not None
                assert len(opened.read(tensor.extent)) == its.length
            assert line["location"]["packet"] == record.location.packet


def test_several_captures_are_one_session(repo: Path) -> None:
    paths = [str(repo / "captures" / name) for name in ("basic_chain.pcap", "param_detach.pcap")]
    with open_run(*paths) as opened:
        assert [c.path for c in opened.session.captures] == paths


def test_what_is_no_capture_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"no capture")
    with pytest.raises(CaptureError, match="not a pcap"):
        open_run(str(path))


def test_the_public_names_are_there() -> None:
    assert all(hasattr(rpcinspect, name) for name in rpcinspect.__all__)
    with pytest.raises(AttributeError):
        rpcinspect.nothing  # noqa: B018


def test_an_answer_is_made_once() -> None:
    run = workload_trace("basic_chain")
    assert run.graphs is run.graphs
    assert run.latency is run.latency
    assert run.exchanges is run.exchanges


def test_a_capture_without_messages_has_empty_answers() -> None:
    with open_run(str(recorded("torch/chan_shm.pcap"))) as opened:
        run = RunModel(opened.session, opened.messages)
    assert opened.session.totals.messages == 0
    assert run.graphs == ()
    assert run.latency.timings == ()


def test_graphs_are_the_sessions_contexts() -> None:
    with open_run(str(capture_of("reinit"))) as opened:
        run = RunModel(opened.session, opened.messages)
        contexts = opened.session.contexts
    assert [(g.job, g.context_id) for g in run.graphs] == [(c.job, c.context_id) for c in contexts]
    for graph, context in zip(run.graphs, contexts, strict=True):
        assert [e.forward for e in graph.edges] == [e.forward for e in context.edges]
        assert [tuple(g.message for g in e.gradients) for e in graph.edges] == [
            e.backward for e in context.edges
        ]


# --- a part of a run: the answers of the whole run, without what no picked message takes part in ------------

NAMES = ("basic_chain", "bwd_boom", "rref_relay", "ps_race", "profiled_legacy", "devmap_cpu")


def narrowed(run: RunModel, indexes: Iterable[int]) -> RunModel:
    """By these messages."""
    rows = bytearray(len(run.messages))
    for index in indexes:
        rows[run.messages[index].row] = 1
    return run.narrowed(bytes(rows), participation_of(run.session, bytes(rows)))


@pytest.mark.parametrize("name", NAMES)
def test_all_messages_leave_all_that_has_any(name: str) -> None:
    run = workload_trace(name)
    part = narrowed(run, range(len(run.messages)))
    assert part.picked == set(range(len(run.messages)))
    assert part.requests == {call.index for call in run.exchanges.calls}
    assert part.graphs == run.graphs
    assert part.latency == run.latency
    assert part.profiles == run.profiles
    assert part.rrefs == run.rrefs
    assert part.device_maps == run.device_maps
    assert {end.pipe for d in part.closings.departures for end in d.pipes} == {
        record.tp.pipe.number for record in run.messages
    }


@pytest.mark.parametrize("name", NAMES)
def test_no_message_leaves_nothing(name: str) -> None:
    run = workload_trace(name)
    part = narrowed(run, ())
    assert part.picked == part.requests == frozenset()
    assert part.graphs == part.profiles == part.rrefs == part.device_maps == part.latency.timings == ()
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
            assert part.picked == {index}
            assert part.requests == {call.index}
            (timing,) = part.latency.timings
            assert timing == next(t for t in run.latency.timings if t.call.index == call.index)


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
    assert narrowed(run, [one.timing.call.index]).latency.stragglers == (one,)
    usual = next(t.call.index for t in run.latency.timings if not t.call.control)
    assert usual not in {one.timing.call.index for one in run.latency.stragglers}
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
