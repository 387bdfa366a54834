"""What is asked of a whole run, as JSON Lines: one object for each context, edge, exchange, group, ….

In: the results of `trace`. Out: dicts for any JSON writer. Names of fields are those of the contract where it
has the same thing: a `context` line here has its fields and more. `begin_ns` and `end_ns` are times of the
capture, other `_ns` are lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from rpcinspect.run.critical_path import Segment
from rpcinspect.run.graph import ContextGraph, Gradient, GraphEdge, GraphTensor, Passing
from rpcinspect.run.latency import Latency, LatencyGroup, Spread, Straggler, Timing
from rpcinspect.run.profile import CallProfile, OperatorRun, ProfileRow, rows_of
from rpcinspect.views.contract.message import text

Json: TypeAlias = dict[str, Any]


def contexts_json(graphs: Sequence[ContextGraph]) -> Iterator[Json]:
    """A `context` line of each."""
    for graph in graphs:
        yield context_json(graph)


def graph_json(graph: ContextGraph, path: Sequence[Segment]) -> Iterator[Json]:
    """A context with the messages to be shown: `context` with their edges, then `passing` and `segment`
    lines.
    """
    yield context_json(graph)
    for message in graph.passing:
        if graph.shows(message.message):
            yield _passing(message, graph)
    for segment in path:
        yield _segment(segment, graph)


def context_json(graph: ContextGraph) -> Json:
    """The contract's `context` line, with what came of each edge."""
    gradients = graph.gradients
    return {
        "kind": "context",
        "context_id": graph.context_id,
        "creator": text(graph.creator),
        "workers": [text(worker) for worker in graph.workers],
        "edges": [_edge(edge) for edge in graph.edges if graph.shows_edge(edge)],
        "cleanup": list(graph.cleanup),
        "job": graph.job,
        "begin_ns": graph.begin_ns,
        "end_ns": graph.end_ns,
        "duration_ns": graph.end_ns - graph.begin_ns,
        "backward_ns": graph.backward_ns,
        "gradients_expected": graph.expected,
        "gradients_came": graph.came,
        "zero_gradients": sum(gradient.zero for gradient in gradients),
    }


def _edge(edge: GraphEdge) -> Json:
    return {
        "autograd_message_id": edge.autograd_message_id,
        "sender": text(edge.sender),
        "receiver": text(edge.receiver),
        "forward": edge.forward,
        "tensors_requiring_grad": sum(tensor.requires_grad for tensor in edge.tensors),
        "backward": [gradient.message for gradient in edge.gradients],
        "answers": edge.answers,
        "what": text(edge.what),
        "begin_ns": edge.begin_ns,
        "end_ns": edge.end_ns,
        "tensors": [_tensor(tensor) for tensor in edge.tensors],
        "nbytes": edge.nbytes,
        "gradients": [_gradient(gradient) for gradient in edge.gradients],
    }


def _gradient(gradient: Gradient) -> Json:
    return {
        "message": gradient.message,
        "answer": gradient.answer,
        "begin_ns": gradient.begin_ns,
        "end_ns": gradient.end_ns,
        "tensors": [{**_tensor(tensor), "zero": tensor.zero} for tensor in gradient.tensors],
        "nbytes": gradient.nbytes,
        "retain_graph": gradient.retain_graph,
        "failed": gradient.failed,
    }


def _tensor(tensor: GraphTensor) -> Json:
    return {
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "layout": tensor.layout,
        "requires_grad": tensor.requires_grad,
        "nbytes": tensor.nbytes,
    }


def _passing(message: Passing, graph: ContextGraph) -> Json:
    return {
        "kind": "passing",
        "context_id": graph.context_id,
        "job": graph.job,
        "message": message.message,
        "src": text(message.source),
        "dst": text(message.destination),
        "request": message.request,
        "answers": message.answers,
        "what": text(message.what),
        "type": message.kind,
        "begin_ns": message.begin_ns,
        "end_ns": message.end_ns,
        "failed": message.failed,
    }


def _segment(segment: Segment, graph: ContextGraph) -> Json:
    return {
        "kind": "segment",
        "context_id": graph.context_id,
        "job": graph.job,
        "does": segment.kind,
        "worker": text(segment.worker),
        "request": segment.request,
        "what": None if segment.what is None else text(segment.what),
        "begin_ns": segment.begin_ns,
        "end_ns": segment.end_ns,
    }


def latency_json(latency: Latency) -> Iterator[Json]:
    """`exchange` lines, then `latency` lines by function and by pair, then `straggler` lines."""
    for timing in latency.timings:
        yield _timing(timing)
    for group in (*latency.functions, *latency.pairs):
        yield _group(group)
    for straggler in latency.stragglers:
        yield _straggler(straggler)


def _timing(timing: Timing) -> Json:
    return {
        "kind": "exchange",
        "request": timing.request,
        "answer": timing.answer,
        "job": timing.job,
        "caller": text(timing.caller),
        "callee": text(timing.callee),
        "what": text(timing.what),
        "function": None if timing.function is None else text(timing.function),
        "type": timing.kind,
        "context_id": timing.context,
        "control": timing.control,
        "parents": list(timing.parents),
        "parent_certain": timing.parent_certain,
        "begin_ns": timing.begin_ns,
        "request_ns": timing.request_ns,
        "busy_ns": timing.busy_ns,
        "nested_ns": timing.nested_ns,
        "answer_ns": timing.answer_ns,
        "total_ns": timing.total_ns,
        "request_bytes": timing.request_bytes,
        "answer_bytes": timing.answer_bytes,
        "failed": timing.failed,
        "gave_up": timing.gave_up,
        "gave_up_ns": timing.gave_up_ns,
    }


def _group(group: LatencyGroup) -> Json:
    return {
        "kind": "latency",
        "by": "function" if group.what is not None else "pair",
        "job": group.job,
        "what": None if group.what is None else text(group.what),
        "caller": None if group.caller is None else text(group.caller),
        "callee": None if group.callee is None else text(group.callee),
        "count": group.count,
        "answered": group.answered,
        "failed": group.failed,
        "given_up": group.given_up,
        "total_ns": _spread(group.total),
        "own_ns": _spread(group.own),
        "nested_ns": group.nested_ns,
        "wire_ns": group.wire_ns,
        "request_bytes": group.request_bytes,
        "answer_bytes": group.answer_bytes,
    }


def _spread(spread: Spread | None) -> Json | None:
    if spread is None:
        return None
    return {"p50": spread.p50, "p90": spread.p90, "p99": spread.p99, "max": spread.max}


def _straggler(straggler: Straggler) -> Json:
    return {
        "kind": "straggler",
        "request": straggler.request,
        "what": text(straggler.what),
        "caller": text(straggler.caller),
        "callee": text(straggler.callee),
        "total_ns": straggler.total_ns,
        "median_ns": straggler.median_ns,
        "nested": straggler.nested,
    }


def profile_json(profiles: Sequence[CallProfile]) -> Iterator[Json]:
    """A `profile` line for each profiled call, then the `profile_row` lines of torch's table."""
    for profile in profiles:
        yield _profile(profile)
    for row in rows_of(profiles):
        yield _profile_row(row)


def _profile(profile: CallProfile) -> Json:
    return {
        "kind": "profile",
        "request": profile.request,
        "answer": profile.answer,
        "job": profile.job,
        "caller": text(profile.caller),
        "callee": text(profile.callee),
        "profiling_id": list(profile.profiling_id),
        "key": text(profile.key),
        "mode_known": profile.mode_known,
        "broken": profile.broken,
        "runs": [_run(run, profile) for run in profile.runs],
    }


def _run(run: OperatorRun, profile: CallProfile) -> Json:
    return {
        "name": text(profile.shown(run)),
        "operator": text(run.name),
        "node_id": run.node_id,
        "thread_id": run.thread,
        "begin_ns": run.begin_ns,
        "total_ns": run.total_ns,
        "self_ns": run.self_ns,
        "async": run.is_async,
        "memory": run.memory,
        "self_memory": run.self_memory,
        "shapes": [list(shape) for shape in run.shapes],
    }


def _profile_row(row: ProfileRow) -> Json:
    return {
        "kind": "profile_row",
        "job": row.job,
        "name": text(row.name),
        "node_id": row.node_id,
        "calls": row.calls,
        "self_ns": row.self_ns,
        "total_ns": row.total_ns,
        "memory": row.memory,
        "self_memory": row.self_memory,
        "async": row.is_async,
    }
