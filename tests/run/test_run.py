"""The programmer's way in: `rpcinspect.open`."""

from __future__ import annotations

from pathlib import Path

import pytest

import rpcinspect
from rpcinspect.errors import CaptureError
from rpcinspect.run.run import Run, open_run
from tests.decoded import decode
from tests.places import recorded
from tests.trace.runs import workload_trace
from tests.truth import capture_of


def test_messages_come_in_the_order_of_time_with_their_bytes(repo: Path) -> None:
    path = repo / "captures" / "basic_chain.pcap"
    told = decode(path).messages
    with rpcinspect.open(str(path)) as opened:
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
    with rpcinspect.open(*paths) as opened:
        assert [c.path for c in opened.session.captures] == paths


def test_what_is_no_capture_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"no capture")
    with pytest.raises(CaptureError, match="not a pcap"):
        rpcinspect.open(str(path))


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
        run = Run(opened.session, opened.messages)
    assert opened.session.totals.messages == 0
    assert run.graphs == ()
    assert run.latency.timings == ()


def test_graphs_are_the_sessions_contexts() -> None:
    with open_run(str(capture_of("reinit"))) as opened:
        run = Run(opened.session, opened.messages)
        contexts = opened.session.contexts
    assert [(g.job, g.context_id) for g in run.graphs] == [(c.job, c.context_id) for c in contexts]
    for graph, context in zip(run.graphs, contexts, strict=True):
        assert [e.forward for e in graph.edges] == [e.forward for e in context.edges]
        assert [tuple(g.message for g in e.gradients) for e in graph.edges] == [
            e.backward for e in context.edges
        ]
