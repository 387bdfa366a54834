"""The autograd graph: what the workers printed of their send and recv functions, and of their gradients."""

from __future__ import annotations

from collections import defaultdict
from hashlib import sha256
from math import prod

import pytest

from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.run import RunModel, open_run
from tests.checks.runs import traced, workload_trace
from tests.decoded import decode
from tests.places import recorded
from tests.truth import Json, workload

CONTEXTS = [
    "basic_chain",
    "bwd_boom",
    "ctx_crowd",
    "devmap_cpu",
    "param_detach",
    "profiled_legacy",
    "ps_race",
    "ps_race_lock",
    "rref_relay",
    "transport_matrix_uv_basic",
    "transport_matrix_uv_mpt",
]


def graph_of(name: str, context_id: int) -> ContextGraph:
    (graph,) = workload_trace(name).graphs_of(context_id)
    return graph


def last_edges(name: str) -> dict[tuple[str, int], Json]:
    """(worker, context) → the last that the worker printed of its functions in it."""
    return {(event["worker"], event["context_id"]): event for event in workload(name).of("edges")}


@pytest.mark.parametrize("name", CONTEXTS)
def test_edges_are_the_functions_that_the_workers_list(name: str) -> None:
    printed = last_edges(name)
    for (worker, context_id), event in printed.items():
        graph = graph_of(name, context_id)
        before = [edge for edge in graph.edges if edge.begin_ns <= event["time_ns"]]
        assert {e.autograd_message_id for e in before if e.sender == worker} == set(event["send"])
        assert {e.autograd_message_id for e in before if e.receiver == worker} == set(event["recv"])
    assert printed or name in ("profiled_legacy", "param_detach")


@pytest.mark.parametrize("name", CONTEXTS)
def test_passes_that_ended_well_brought_every_gradient_and_others_did_not(name: str) -> None:
    run = workload(name)
    failed = {event["context_id"] for event in run.of("backward-error")}
    done = {event["context_id"] for event in run.of("backward-done")} - failed
    for graph in workload_trace(name).graphs:
        if graph.context_id in done:
            assert graph.came == graph.expected == len(graph.edges)
        elif graph.context_id in failed and graph.edges:
            assert graph.came < graph.expected or any(g.failed for g in graph.gradients)
        assert all(edge.gradients == () for edge in graph.edges) or graph.backward_ns is not None


def test_gradients_have_the_shapes_that_the_worker_prints() -> None:
    (event,) = workload("basic_chain").of("gradients")
    graph = graph_of("basic_chain", 0)
    first = graph.edges[0]
    assert [list(t.shape) for t in first.gradients[0].tensors] == [t["shape"] for t in event["tensors"]]
    assert first.what == "basic_chain.scale"
    assert (first.sender, first.receiver, first.nbytes) == ("worker0", "worker1", 64)
    assert [t.nbytes for t in first.tensors] == [48, 16]


def test_a_gradient_follows_its_edge_the_other_way() -> None:
    trace = workload_trace("ctx_crowd")
    for graph in trace.graphs:
        for edge in graph.edges:
            for gradient in edge.gradients:
                row = trace.messages[gradient.message].row
                assert trace.session.source(row) == edge.receiver
                assert trace.session.destination(row) == edge.sender
                assert edge.end_ns <= gradient.begin_ns
                assert graph.begin_ns <= gradient.begin_ns <= gradient.end_ns <= graph.end_ns


def test_of_a_failed_pass_is_told_which_edges_lack_their_gradient() -> None:
    graph = graph_of("bwd_boom", 0)
    assert (len(graph.edges), graph.expected, graph.came) == (4, 4, 2)
    lacking = [(e.sender, e.receiver, e.what) for e in graph.edges if not e.gradients]
    assert lacking == [("worker0", "worker2", "bwd_boom.relay"), ("worker2", "worker1", "bwd_boom.explode")]
    assert all(gradient.failed for gradient in graph.gradients)
    assert graph.workers == ("worker0", "worker2", "worker1")


def test_messages_without_grads_make_no_edge_and_are_told() -> None:
    trace = workload_trace("ctx_crowd")
    calls = workload("ctx_crowd").of("call")
    for graph in trace.graphs:
        its = [call for call in calls if call["context_id"] == graph.context_id]
        edges = [edge for edge in graph.edges if edge.answers is None]
        bare = [m for m in graph.passing if m.kind == "PYTHON_CALL"]
        assert len(its) == len(edges) + len(bare)
        assert graph.expected == 0 or graph.edges


def test_every_message_of_a_context_is_told_once() -> None:
    graphs = defaultdict(list)
    for graph in workload_trace("rref_relay").graphs:
        told = [e.forward for e in graph.edges] + [g.message for g in graph.gradients]
        told += [message.message for message in graph.passing]
        assert len(told) == len(set(told))
        graphs[graph.job].append(graph)
    assert len(graphs) == 1


def test_sparse_gradients_count_their_indices() -> None:
    graphs = traced(
        recorded("torch-suite/TensorPipeAgentDistAutogradTest.test_backward_simple_sparse.pcap.gz")
    )
    sparse = [
        tensor
        for graph in graphs.graphs
        for gradient in graph.gradients
        for tensor in gradient.tensors
        if tensor.layout != "strided"
    ]
    assert sparse
    assert all(tensor.nbytes > 0 for tensor in sparse)


def test_a_clean_up_is_no_part_of_the_duration() -> None:
    graph = graph_of("basic_chain", 0)
    trace = workload_trace("basic_chain")
    assert graph.cleanup == (18, 19)
    assert all(trace.messages[index].tp.first_ns > graph.end_ns for index in graph.cleanup)


def test_a_result_that_nobody_used_is_the_edge_that_lacks_its_gradient() -> None:
    run = workload("faults/unused_result")
    (fault,) = run.of("fault")
    (call,) = run.of("call", call=fault["call"])
    (graph,) = workload_trace("faults/unused_result").graphs
    made = [edge for edge in graph.missing if edge.answers is None]
    assert [(edge.what, edge.sender, edge.receiver) for edge in made] == [
        (fault["function"], call["worker"], call["to"])
    ]
    assert len(graph.missing) == 2  # and the edge of what it returned


def test_edges_of_calls_after_the_pass_await_nothing() -> None:
    (graph,) = workload_trace("faults/used_result").graphs
    assert workload("faults/used_result").of("fault") == []
    assert graph.missing == ()
    assert graph.came == graph.expected < len(graph.edges)


def test_zero_gradients_are_those_whose_bytes_are_zeros() -> None:
    path = recorded("torch-suite/DistAutogradTest.test_backward_unused_tensors.pcap.gz")
    with open_run(str(path)) as opened:
        graphs = RunModel(opened.session, opened.messages, source=opened.bytes).graphs
    zero = {g.message: [t.zero for t in g.tensors] for graph in graphs for g in graph.gradients}
    seen = 0
    for message in decode(path).messages:
        if message["body"]["type"] == "BACKWARD_AUTOGRAD_REQ":
            told = [message["tensors"][i] for i in message["body"]["grads"]]
            zeros = [
                tensor["sha256"] == sha256(bytes(4 * prod(tensor["shape"]))).hexdigest() for tensor in told
            ]
            assert zero[message["index"]] == zeros
            seen += sum(zeros)
    assert seen > 0


def test_without_the_bytes_no_gradient_is_zero() -> None:
    path = recorded("torch-suite/DistAutogradTest.test_backward_unused_tensors.pcap.gz")
    assert not any(g.zero for graph in traced(path).graphs for g in graph.gradients)
