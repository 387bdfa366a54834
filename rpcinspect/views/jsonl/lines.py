"""Sessions as JSON Lines: the output contract, schema 1, that other people's scripts rely on.

In: records as they become complete, then the session. Out: one JSON object per line. What a message line
holds of itself is rendered at once and spooled; its index, its ends' names and what it answers are put before
that when the session is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, BinaryIO

import orjson
from msgspec import UNSET, defstruct
from msgspec.json import Encoder

from rpcinspect.errors import Problem
from rpcinspect.fields.plain import Json, JsonLine, Picked, each, optional, plain, text
from rpcinspect.fields.session import AtTheEnd, Known
from rpcinspect.fields.table import MESSAGE
from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import AutogradContext, CaptureInfo, Session, Totals, Worker
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tensorpipe.control_types import TpDevice
from rpcinspect.tensorpipe.records import Pipe
from rpcinspect.views.jsonl.message import MessageRenderer, location_json, problem_json
from rpcinspect.views.spool import Spool

BATCH = 4000
"""Message lines that are put together at a time."""


class JsonLines:
    """The view: `feed` records in the order in which messages become complete, then `finish` with the session
    gives every line.
    """

    def __init__(self, spool: BinaryIO, source: CaptureBytes, *, hashes: bool = True) -> None:
        self._spool = Spool(spool)
        self._renderer = MessageRenderer(source, hashes=hashes)

    def feed(self, records: Sequence[RpcRecord | None]) -> None:
        """Renders some messages; None stands for one that will not be shown."""
        self._spool.extend(self._renderer.tails(records))

    def finish(self, session: Session, shown: Shown | None = None) -> Iterator[bytes]:
        """Yields all lines, in the contract's order, in pieces that end with a line; of messages those in
        `shown`."""
        yield lines(head_lines(session))
        for batch in self.batches(session, shown):
            yield b"\n".join(batch) + b"\n"
        yield lines(tail_lines(session, shown))

    def batches(self, session: Session, shown: Shown | None = None) -> Iterator[list[bytes]]:
        """The objects of messages, some at a time."""
        order = session.order.tolist()
        if shown is not None:
            order = shown.of(order)
        known = AtTheEnd(session)
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            yield message_lines(known.at(rows), self._spool.read(rows))


_HEAD = [field.key for field in MESSAGE if field.in_json]
_Head = defstruct("_Head", [(key, Any, UNSET) for key in _HEAD], tag_field="kind", tag="message", gc=False)
_columns = attrgetter(*_HEAD)
_encode = Encoder().encode_lines


def message_lines(known: Known, tails: Iterable[bytes]) -> list[bytes]:
    """Returns the lines of the chosen messages without line breaks; `tails`: the parts that each record alone
    gives."""
    columns = [repeat(UNSET) if column is None else column for column in _columns(known)]
    *heads, _ = _encode(list(map(_Head, *columns))).split(b"}\n")
    return [b"%b,%b" % both for both in zip(heads, tails, strict=True)]


def message_line(record: RpcRecord, session: Session, source: CaptureBytes, *, hashes: bool = True) -> bytes:
    """Returns one message's line, as `JsonLines` writes it."""
    tails = MessageRenderer(source, hashes=hashes).tails([record])
    (line,) = message_lines(AtTheEnd(session).at([record.row]), tails)
    return line + b"\n"


def lines(items: Iterator[Json]) -> bytes:
    """Objects as lines."""
    return b"".join([orjson.dumps(item) + b"\n" for item in items])


def head_lines(session: Session) -> Iterator[Json]:
    """What comes before the messages: captures, workers, pipes."""
    for capture in session.captures:
        yield capture_json(capture)
    for worker in session.workers:
        yield worker_json(worker)
    for pipe in session.pipes:
        if not pipe.logged:
            yield pipe_json(pipe, session)


def tail_lines(session: Session, shown: Shown | None = None) -> Iterator[Json]:
    """Yields the lines behind the messages: contexts, RRefs and findings, all or those that shown messages
    take part in; then the workers' own logs, and the summary."""
    contexts = session.contexts if shown is None else shown.contexts(session)
    rrefs = session.rrefs if shown is None else shown.rrefs(session)
    findings = session.findings if shown is None else shown.findings(session)
    for context in contexts:
        yield context_json(context)
    for rref in rrefs:
        yield rref_json(rref)
    for finding in findings:
        yield finding_json(finding)
    if session.worker_logs is not None:
        from rpcinspect.views.worker_logs import event_json, file_json

        yield from map(file_json, session.worker_logs.files)
        if shown is None:
            yield from map(event_json, session.worker_logs.events)
    summary = summary_json(session.totals, session.problems)
    if shown is not None:
        counts = {"contexts": len(contexts), "rrefs": len(rrefs), "findings": len(findings)}
        whole = (session.contexts, session.rrefs, session.findings)
        summary |= filter_json(shown, counts, dict(zip(counts, map(len, whole), strict=True)))
    yield summary


def filter_json(shown: Shown, counts: Mapping[str, int], of: Mapping[str, int]) -> Json:
    """Returns the line about a filter: how many messages match, how many other things are shown."""
    return {"filter": text(shown.text), "matched": shown.count, "shown": dict(counts), "of": dict(of)}


_clock_json = Picked("offset_ns uncertainty_ns connections applied=certain")
_capture_json = Picked(
    "capture path format packets bytes first_time_ns last_time_ns reader clock", clock=optional(_clock_json)
)
_bytes_json = Picked(
    "rpc=rpc_bytes tensors=tensor_bytes missing=missing_bytes skipped=skipped_bytes store=store_bytes"
)
_worker_json = JsonLine("worker", "name id group job addresses")
ended_json = Picked("how status signal error time_ns pid oom_kills")
_ids = each(lambda fork: plain(fork.fork_id))
rref_json = JsonLine(
    "rref", "rref_id owner forks deleted live_forks=alive job", forks=_ids, deleted=_ids, live_forks=_ids
)
finding_json = JsonLine("finding", "code severity messages workers text remedy")


def worker_json(worker: Worker) -> Json:
    """Returns a `worker` line; `ended` where a recorder noted the end."""
    line = _worker_json(worker)
    return line if worker.ended is None else {**line, "ended": ended_json(worker.ended)}


def context_json(context: AutogradContext) -> Json:
    """Returns a `context` line; written out, since there may be as many as steps of a training."""
    return {
        "kind": "context",
        "context_id": context.context_id,
        "creator": text(context.creator),
        "workers": [text(worker) for worker in context.workers],
        "edges": [
            {
                "autograd_message_id": edge.autograd_message_id,
                "sender": text(edge.sender),
                "receiver": text(edge.receiver),
                "forward": edge.forward,
                "tensors_requiring_grad": edge.tensors_requiring_grad,
                "backward": edge.backward,
            }
            for edge in context.edges
        ],
        "cleanup": context.cleanup,
        "job": context.job,
    }


def capture_json(capture: CaptureInfo) -> Json:
    """A `capture` line."""
    return {"kind": "capture", "schema": 1, **_capture_json(capture)}


def pipe_json(pipe: Pipe, session: Session) -> Json:
    """A `pipe` line."""
    ends = {"client": text(session.clients[pipe.number]), "server": text(session.servers[pipe.number])}
    return {"kind": "pipe", "pipe": pipe.number, **ends, **_pipe_json(pipe)}


def _channels(channels: Iterable[tuple[tuple[TpDevice, TpDevice], str]]) -> dict[str, str]:
    """Keyed client device → server device, as the contract has it."""
    return {f"{_device(client)}->{_device(server)}": text(name) for (server, client), name in channels}


def _device(device: TpDevice) -> str:
    return text(f"{device.type}:{device.index}")


_pipe_json = Picked("transport channels visible=visible.value reason", channels=_channels)


def summary_json(totals: Totals, problems: tuple[Problem, ...]) -> Json:
    """The `summary` line; `problem_list` holds the problems that belong to no message."""
    return {
        "kind": "summary",
        "messages": totals.messages,
        "by_type": totals.by_type,
        "problems": totals.problems,
        "bytes": _bytes_json(totals),
        "problem_list": [{**problem_json(p), "location": location_json(p.location)} for p in problems],
    }
