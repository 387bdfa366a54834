"""Spans of OpenTelemetry: a call at its caller and, where the capture can tell, at its callee.

In: the calls of a run. Out: spans as OTLP's JSON has them, by the worker that each belongs to. Names of
attributes are those of OpenTelemetry's conventions for RPC (release 1.44 and later); ours begin with
`torchrpc.`.

    CLIENT  each call at its caller: from the first byte of the request to the last of the answer
    SERVER  the same call at its callee: from the last byte of the request to the first of the answer, only
            where both ends have one address, so that the capture was made on the callee's host. Elsewhere
            nobody knows when the request arrived, or when the answer left: a log has the caller's times.
    0       an answer whose request was not captured

A trace is one call that a worker's own program sent, with everything that certainly followed from it: a
trace per job would have a million spans, more than backends take. What has several possible parents begins a
trace, and links to each of them. All ids follow from the whole capture and the index of the request, so that
exports with other filters have the same ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np

from rpcinspect.export.otlp.failures import SpanFailure, failure_at_caller, failure_in
from rpcinspect.export.otlp.values import attributes, line, nanoseconds
from rpcinspect.fields.phrases import packed
from rpcinspect.fields.plain import Json
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import size_of
from rpcinspect.run.exchanges import Exchange, UnmatchedAnswer
from rpcinspect.run.run import RunModel
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.model import Session
from rpcinspect.tensorpipe.records import MessageOrigin

SYSTEM = "torch.distributed.rpc"
UNKNOWN, SERVER, CLIENT = 0, 2, 3
"""Of enum SpanKind in trace.proto."""
MAX_LINKS = 32
"""Of a span; the others are counted."""


class Spans:
    """Makes the spans of a run."""

    def __init__(self, run: RunModel) -> None:
        self._run = run
        self._ids = _Ids(run.session)
        self._roots: dict[int, int] = {}
        """Request → the request that its trace begins with."""
        self._end_ns = max(run.session.messages.end_time_ns, default=0)
        self._forward = _forward_calls(run)

    def of_call(self, call: Exchange) -> Iterator[tuple[WorkerKey, Json]]:
        """Yields the spans of a call, each with the worker that it belongs to."""
        serves = has_server_times(call)
        yield (call.job, call.caller), self._client(call, serves=serves)
        if serves:
            yield (call.job, call.callee), self._server(call)

    def of_answer(self, answer: UnmatchedAnswer) -> tuple[WorkerKey, Json]:
        """Returns the span of an answer whose request was not captured, and the worker that sent it."""
        record, failure = answer.record, failure_in(answer.record)
        told = {
            "error.type": None if failure is None else failure.type,
            "service.peer.name": answer.destination,
            "torchrpc.answer": answer.index,
            "torchrpc.type": type_name(record.rpc.message.type),
            "torchrpc.answer.bytes": size_of(record),
            "torchrpc.request.missing": True,
        }
        span = {
            **self._ids.of_span(answer.index, UNKNOWN, answer.index),
            **_named(type_name(record.rpc.message.type), record.tp.first_ns, record.tp.last_ns, told),
        }
        return (answer.job, answer.source), _with(span, failure, event=True)

    # --- the two sides of a call ----------------------------------------------------------------------------

    def _client(self, call: Exchange, *, serves: bool) -> Json:
        given_up = None if call.failure is None else failure_at_caller(call.failure)
        failure = given_up or failure_in(call.response)
        caused, certain = self._run.causes.of(call.index)
        told = {
            "torchrpc.request.bytes": call.request_bytes,
            "torchrpc.answer.bytes": None if call.response is None else call.answer_bytes,
            "torchrpc.packet": call.request.location.packet if _on_network(call) else None,
            "torchrpc.housekeeping": call.housekeeping or None,
            "torchrpc.unanswered": call.answer is None or None,
            "torchrpc.parent.uncertain": not certain or None,
        }
        end = call.end_ns if given_up is None else given_up.time_ns
        span = self._side(call, CLIENT, (call.begin_ns, self._end_ns if end is None else end), failure, told)
        if certain and caused:
            span["parentSpanId"] = self._serving(caused[0])
        links, dropped = self._links(call, () if certain else caused)
        if links:
            span["links"] = links
        if dropped:
            span["droppedLinksCount"] = dropped
        return _with(span, failure, event=given_up is not None or not serves)

    def _server(self, call: Exchange) -> Json:
        assert call.answered_ns is not None
        failure = failure_in(call.response)
        span = self._side(call, SERVER, (call.arrived_ns, call.answered_ns), failure, {})
        span["parentSpanId"] = self._ids.span(call.index, CLIENT)
        return _with(span, failure, event=True)

    def _side(
        self, call: Exchange, kind: int, times: tuple[int, int], failure: SpanFailure | None, own: Json
    ) -> Json:
        """Returns what the spans of both sides have; `own` is what this one has beside it."""
        calls = call.name is not None or call.function is not None
        told = {
            "rpc.method": call.what if calls else None,
            "code.function.name": call.function,
            "error.type": None if failure is None else failure.type,
            "service.peer.name": call.callee if kind == CLIENT else call.caller,
            **_addresses(call, kind),
            "torchrpc.request": call.index,
            "torchrpc.answer": call.answer,
            "torchrpc.type": call.type,
            "torchrpc.context": None if call.context is None else packed(call.context),
            **own,
        }
        place = self._ids.of_span(call.index, kind, self._root(call.index))
        return {**place, **_named(call.what, *times, told)}

    # --- which span belongs to which ------------------------------------------------------------------------

    def _serving(self, index: int) -> str:
        """Returns the id of the span that stands for a call while it is served."""
        serves = has_server_times(self._run.calls[index])
        return self._ids.span(index, SERVER if serves else CLIENT)

    def _root(self, index: int) -> int:
        path = []
        at = index
        parents = self._run.causes.parents
        while at not in self._roots and at in parents:
            path.append(at)
            at = parents[at]
        root = self._roots.get(at, at)
        self._roots.update(dict.fromkeys(path, root))
        return root

    def _links(self, call: Exchange, possible: Sequence[int]) -> tuple[list[Json], int]:
        """Returns the links of a span, and how many there are beside them: of many calls at once, each may
        have all others as parents."""
        forward = self._forward.get(call.index, [])
        links = [
            self._link(index, {"torchrpc.link": "forward", "torchrpc.edge": packed(edge)})
            for index, edge in forward[:MAX_LINKS]
        ]
        told = {"torchrpc.link": "possible-parent"}
        room = MAX_LINKS - len(links)
        links += [self._link(parent, told, self._serving(parent)) for parent in possible[:room]]
        return links, len(forward) + len(possible) - len(links)

    def _link(self, index: int, told: Json, span: str | None = None) -> Json:
        return {
            "traceId": self._ids.trace(self._root(index)),
            "spanId": span or self._ids.span(index, CLIENT),
            "attributes": attributes({**told, "torchrpc.request": index}),
        }


class _Ids:
    """Ids of traces and spans, which nobody can tell from random ones, and which are the same each time."""

    def __init__(self, session: Session) -> None:
        columns, digest = session.messages, blake2b(digest_size=32)
        for column in (columns.time_ns, columns.end_time_ns, columns.id, columns.type, columns.from_client):
            digest.update(np.asarray(column)[session.order].tobytes())
        self._key = digest.digest()

    def of_span(self, index: int, kind: int, root: int) -> Json:
        return {"traceId": self.trace(root), "spanId": self.span(index, kind), "kind": kind}

    def trace(self, index: int) -> str:
        return blake2b(b"trace %d" % index, digest_size=16, key=self._key).hexdigest()

    def span(self, index: int, kind: int) -> str:
        return blake2b(b"span %d %d" % (index, kind), digest_size=8, key=self._key).hexdigest()


def has_server_times(call: Exchange) -> bool:
    """Returns whether the capture was made where the callee runs, and saw the answer leave."""
    pipe = call.request.tp.pipe
    return _on_network(call) and call.answered_ns is not None and pipe.client.host == pipe.server.host


def _on_network(call: Exchange) -> bool:
    return call.request.tp.pipe.origin is MessageOrigin.PACKET


def _forward_calls(run: RunModel) -> dict[int, list[tuple[int, int]]]:
    """Returns gradients by the index of their request → (request whose forward pass they are of, edge)."""
    asked = {call.answer: call.index for call in run.exchanges.calls if call.answer is not None}
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for edge in (edge for context in run.session.contexts for edge in context.edges):
        forward = asked.get(edge.forward, edge.forward)
        if forward in run.calls:
            for backward in edge.backward:
                found[backward].append((forward, edge.autograd_message_id))
    return found


def _addresses(call: Exchange, kind: int) -> Json:
    """Returns where the callee listens, and the other end of the connection."""
    if not _on_network(call):
        return {}
    pipe = call.request.tp.pipe
    listens = pipe.listener or pipe.server
    peer = pipe.server if kind == CLIENT else pipe.client
    return {
        "server.address": listens.host,
        "server.port": listens.port,
        "network.peer.address": peer.host,
        "network.peer.port": peer.port,
    }


def _named(name: str, begin_ns: int, end_ns: int, told: Json) -> Json:
    return {
        "name": line(name),
        "startTimeUnixNano": nanoseconds(begin_ns),
        "endTimeUnixNano": nanoseconds(max(begin_ns, end_ns)),
        "attributes": attributes({"rpc.system.name": SYSTEM, **told}),
    }


def _with(span: Json, failure: SpanFailure | None, *, event: bool) -> Json:
    """Returns the span with its failure; the event is where the exception was raised, as far as spans go."""
    if failure is not None:
        span["status"] = failure.status()
    if failure is not None and event:
        span["events"] = [failure.event()]
    return span
