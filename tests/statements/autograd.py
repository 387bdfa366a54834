"""Statements of autograd contexts, their edges and passes."""

from __future__ import annotations

from collections import Counter

from rpcinspect.session.words import packed
from tests.statements.told import Statement, Told
from tests.truth import CLOCK_NS, NO_TENSORS


def context(on: Told, line: Statement) -> None:
    graph = on.graph(line["context_id"])
    assert graph is not None
    assert (graph.creator, graph.workers[0]) == (line["worker"], line["worker"])
    assert graph.begin_ns >= line["time_ns"] - CLOCK_NS


def context_exit(on: Told, line: Statement) -> None:
    graph = on.graph(line["context_id"])
    assert graph is not None
    assert graph.end_ns <= line["time_ns"]
    cleaned = {m.destination for m in graph.passing if m.message in graph.cleanup}
    assert cleaned | {graph.creator} >= set(graph.workers)
    assert not [f for f in on.findings if f.code == "leaked-context" and packed(graph.context_id) in f.text]


def edges(on: Told, line: Statement) -> None:
    graph = on.graph(line["context_id"])
    me, now = line["worker"], line["time_ns"]
    if graph is None:
        assert (line["send"], line["recv"], line["known_workers"]) == ([], [], [])
        return
    so_far = [edge for edge in graph.edges if edge.begin_ns < now]
    assert sorted(e.autograd_message_id for e in so_far if e.sender == me) == line["send"]
    assert sorted(e.autograd_message_id for e in so_far if e.receiver == me) == line["recv"]
    spoken_to = {e.receiver for e in so_far if e.sender == me}
    spoken_to |= {m.destination for m in graph.passing if m.source == me and m.request and m.begin_ns < now}
    spoken_to |= {e.sender for e in so_far if e.receiver == me and any(g.begin_ns < now for g in e.gradients)}
    assert sorted(on.run.ids[name] for name in spoken_to) == line["known_workers"]


def backward(on: Told, line: Statement) -> None:
    graph = on.graph(line["context_id"])
    assert graph is not None
    since = line["time_ns"] - CLOCK_NS
    own = (g for e in graph.edges for g in e.gradients if e.receiver == line["worker"])
    sent = [gradient for gradient in own if gradient.begin_ns >= since]
    assert sent
    assert {gradient.retain_graph for gradient in sent} == {line["retain_graph"]}
    passes = [e for e in on.run.of("backward") if e["context_id"] == line["context_id"]]
    assert graph.backward_ns is not None
    assert graph.backward_ns >= min(one["time_ns"] for one in passes) - CLOCK_NS


def backward_done(on: Told, line: Statement) -> None:
    graph = on.graph(line["context_id"])
    assert graph is not None
    assert graph.missing == ()
    assert graph.came == graph.expected > 0
    assert not any(gradient.failed for gradient in graph.gradients)
    edges = [
        edge for edge in graph.edges if edge.begin_ns < line["time_ns"]
    ]  # another pass may come after it
    assert all(g.end_ns <= line["time_ns"] for edge in edges for g in edge.gradients)


def backward_error(on: Told, line: Statement) -> None:
    graph = on.graph(line["context_id"])
    assert graph is not None
    failed = [g.answer for g in graph.gradients if g.failed]
    if failed:
        finding = on.error(line["error"]["text"], line["worker"])
        assert set(failed) <= set(finding.messages)
    else:  # nobody answered
        open_gradients = [g.message for g in graph.gradients if g.answer is None]
        assert open_gradients
        finding = on.finding("unanswered-request", workers=(line["worker"],))
        assert list(finding.messages) == open_gradients
        assert "end of file" in line["error"]["text"]


def gradients(on: Told, line: Statement) -> None:
    """Each leaf's gradient came by an edge of this worker's; one that is a sum, by its parts."""
    graph = on.graph(line["context_id"])
    assert graph is not None
    tensors = line["tensors"]
    came = [(g, t) for e in graph.edges if e.sender == line["worker"] for g in e.gradients for t in g.tensors]
    forms = Counter((tensor.dtype, tensor.shape) for _, tensor in came)
    messages = on.run.decoded.messages
    digests = {t["sha256"] for g, _ in came for t in messages[g.message]["tensors"]}
    leaves = [tensors[leaf["tensor"]] for leaf in line["grads"].values() if leaf is not None]
    for leaf in leaves:
        form = (leaf["dtype"], tuple(leaf["shape"]))
        assert forms[form]
        alone = forms[form] == 1
        if alone and on.name != NO_TENSORS and digests != {None}:
            assert leaf["sha256"] in digests
    assert len(leaves) <= line["count"] <= len(came)


def none(on: Told, line: Statement) -> None:
    graph = on.graph(line["context_id"])
    assert graph is not None
    assert (line["count"], graph.edges, graph.gradients, graph.backward_ns) == (0, (), (), None)


def local(on: Told, line: Statement) -> None:
    assert line["equal"]
    (same,) = on.run.of("gradients", worker=line["worker"])
    assert line["name"] in same["grads"]
    mine = line.get("tensors")[0]
    assert mine["sha256"] == same["tensors"][same["grads"][line["name"]]["tensor"]]["sha256"]
