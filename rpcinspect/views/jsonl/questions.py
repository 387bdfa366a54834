"""What is asked of a whole run, as JSON Lines: one object for each context, edge, exchange, RRef, ….

In: answers of a `Run`. Out: dicts for any JSON writer. Names of fields are those of the contract where it has
the same thing: a `context` or `rref` line here has its fields and more. `begin_ns` and `end_ns` are times of
the capture, other `_ns` are lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.fields.plain import Json, JsonLine, Picked, each, optional, plain, text
from rpcinspect.rpc.message import type_name
from rpcinspect.run.closings import Closings
from rpcinspect.run.critical_path import Segment
from rpcinspect.run.device_maps import DeviceMap
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.latency import Latency
from rpcinspect.run.profile import CallProfile, rows_of
from rpcinspect.session.model import RRef
from rpcinspect.views.jsonl.lines import ended_json, rref_json
from rpcinspect.views.worker_logs import event_json

TENSOR = "dtype shape layout requires_grad nbytes"
_gradient = Picked(
    "message answer begin_ns end_ns tensors nbytes retain_graph failed",
    tensors=each(Picked(f"{TENSOR} zero")),
)
_edge = Picked(
    "autograd_message_id sender receiver forward tensors_requiring_grad=tensors backward=gradients "
    "answers what begin_ns end_ns tensors nbytes gradients",
    tensors_requiring_grad=lambda tensors: sum(tensor.requires_grad for tensor in tensors),
    backward=lambda gradients: [gradient.message for gradient in gradients],
    tensors=each(Picked(TENSOR)),
    gradients=each(_gradient),
)
_context = Picked("context_id creator workers edges cleanup job begin_ns end_ns", edges=list)
_spans = Picked("backward_ns gradients_expected=expected gradients_came=came")
_passing = Picked("message src=source dst=destination request answers what type=kind begin_ns end_ns failed")
_segment = Picked("does=kind worker request what begin_ns end_ns")
_timing = JsonLine(
    "exchange",
    "request=call.index answer=call.answer job=call.job caller=call.caller callee=call.callee what=call.what "
    "function=call.function type=call.kind context_id=call.context control=call.control "
    "housekeeping=call.housekeeping parents=call.parents parent_certain=call.parent_certain "
    "begin_ns=call.begin_ns request_ns busy_ns nested_ns answer_ns total_ns "
    "request_bytes=call.request_bytes answer_bytes=call.answer_bytes failed=call.failed "
    "gave_up=call.failure gave_up_ns",
    type=type_name,
    parents=lambda parents: [call.index for call in parents],
    gave_up=optional(lambda failure: text(failure.reason)),
)
_spread = optional(Picked("p50 p90 p99 max"))
_group = JsonLine(
    "latency",
    "by=what job what caller callee count answered failed given_up total_ns=total own_ns=own "
    "nested_ns wire_ns request_bytes answer_bytes",
    by=lambda what: "pair" if what is None else "function",
    total_ns=_spread,
    own_ns=_spread,
)
_straggler = JsonLine(
    "straggler",
    "request=timing.call.index what=timing.call.what caller=timing.call.caller callee=timing.call.callee "
    "total_ns median_ns nested",
)
_profile = JsonLine("profile", "request answer job caller callee profiling_id key mode_known broken")
_run = Picked(
    "operator=name node_id thread_id=thread begin_ns total_ns self_ns async=is_async "
    "memory self_memory shapes"
)
_profile_row = JsonLine(
    "profile_row", "job name node_id calls self_ns total_ns memory self_memory async=is_async"
)
_fork = Picked("fork_id holder giver begin requested accepted deleted acknowledged state")
_story = Picked("creator what created confirmed failed fetches backwards stories=forks", stories=each(_fork))
_device_map = JsonLine(
    "device_map", "job caller callee seen used tensors uncovered uncovered_answers messages line"
)
_pipe = Picked("pipe client server how time_ns in_flight")
_departure = JsonLine("departure", "job worker time_ns reset unanswered waiting pipes", pipes=each(_pipe))


def contexts_json(graphs: Sequence[ContextGraph]) -> Iterator[Json]:
    """A `context` line of each."""
    for graph in graphs:
        yield context_json(graph)


def graph_json(graph: ContextGraph, path: Sequence[Segment]) -> Iterator[Json]:
    """A context with the messages to be shown: `context` with their edges, then `passing` and `segment`
    lines.
    """
    yield context_json(graph)
    of = {"context_id": graph.context_id, "job": graph.job}
    for message in graph.passing:
        if graph.shows(message.message):
            yield {"kind": "passing", **of, **_passing(message)}
    for segment in path:
        yield {"kind": "segment", **of, **_segment(segment)}


def context_json(graph: ContextGraph) -> Json:
    """The contract's `context` line, with what came of each edge."""
    return {
        "kind": "context",
        **_context(graph),
        "edges": [_edge(edge) for edge in graph.edges if graph.shows_edge(edge)],
        "duration_ns": graph.end_ns - graph.begin_ns,
        **_spans(graph),
        "zero_gradients": sum(gradient.zero for gradient in graph.gradients),
    }


def latency_json(latency: Latency) -> Iterator[Json]:
    """`exchange` lines, then `latency` lines by function and by pair, then `straggler` lines."""
    yield from map(_timing, latency.timings)
    yield from map(_group, (*latency.functions, *latency.pairs))
    yield from map(_straggler, latency.stragglers)


def profile_json(profiles: Sequence[CallProfile]) -> Iterator[Json]:
    """A `profile` line for each profiled call, then the `profile_row` lines of torch's table."""
    for profile in profiles:
        runs = [{"name": text(profile.shown(run)), **_run(run)} for run in profile.runs]
        yield {**_profile(profile), "runs": runs}
    yield from map(_profile_row, rows_of(profiles))


def rrefs_json(rrefs: Sequence[RRef]) -> Iterator[Json]:
    """An `rref` line of each."""
    for rref in rrefs:
        yield {**rref_json(rref), **_story(rref)}


def device_maps_json(maps: Sequence[DeviceMap]) -> Iterator[Json]:
    """A `device_map` line for each caller and callee."""
    yield from map(_device_map, maps)


def closings_json(closings: Closings) -> Iterator[Json]:
    """A `departure` line for each worker that ended pipes, a `log` line for each that the workers' own logs
    have of that, then one `closings` line, with `ended` where a recorder tells of processes."""
    yield from map(_departure, closings.departures)
    yield from map(event_json, closings.reports)
    ended = [
        {"worker": plain(worker.name), "job": worker.job, **ended_json(worker.ended)}
        for worker in closings.ended
    ]
    yield {
        "kind": "closings",
        "first": None if closings.first is None else plain(closings.first.worker),
        "first_by_logs": None if closings.first_report is None else plain(closings.first_report.peer),
        "open_pipes": closings.open_pipes,
        **({"ended": ended} if ended else {}),
    }
