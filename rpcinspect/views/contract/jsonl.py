"""Sessions as JSON Lines: the output contract, schema 1, that other people's scripts rely on.

In: records as they become complete, then the session. Out: one JSON object per line. What a message line
holds of itself is rendered at once and spooled; its index, its ends' names and what it answers are put before
that when the session is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import mod
from typing import Any, BinaryIO, TypeAlias

import orjson

from rpcinspect.errors import Problem
from rpcinspect.rpc.message import MessageType, is_request, type_name
from rpcinspect.rpc.questions import CLEAN_UP
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.causes import Causes, explain
from rpcinspect.run.names import names_of
from rpcinspect.session.model import (
    NONE,
    AutogradContext,
    CallFailure,
    CaptureInfo,
    Finding,
    RRef,
    Session,
    Totals,
    Worker,
)
from rpcinspect.views.contract.message import text
from rpcinspect.views.contract.message_line import NULL, MessageRenderer, location_json, problem_json
from rpcinspect.views.shown import Shown
from rpcinspect.views.spool import Spool
from rpcinspect.wire.ranges import CaptureBytes
from rpcinspect.wire.records import Pipe
from rpcinspect.wire.tensorpipe import TpDevice

Json: TypeAlias = dict[str, Any]

TRUTH = (b"false", b"true")
OWN = (b"", b"true")
"""Of a request that its sender's own program sent."""
KEEPING = CLEAN_UP | {MessageType.RREF_ACK, MessageType.CLEANUP_AUTOGRAD_CONTEXT_RESP}
"""Messages with which agents keep house."""
BATCH = 1000
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
        """All lines, in the contract's order, in pieces that end with a line; of messages those that are
        `shown`.
        """
        yield lines(head_lines(session))
        for batch in self.batches(session, shown):
            yield b"\n".join(batch) + b"\n"
        yield lines(tail_lines(session, shown))

    def batches(self, session: Session, shown: Shown | None = None) -> Iterator[list[bytes]]:
        """The objects of messages, some at a time."""
        order = session.order.tolist()
        if shown is not None:
            order = shown.of(order)
        heads = _Heads(session)
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            yield heads.before(rows, self._spool.read(rows))


class _Heads:
    """The beginning of message lines, up to what the spool holds."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._parents = _parents(explain(session))
        self._calls = _calls(session)
        self._clients = [orjson.dumps(text(label)) for label in session.clients]
        self._servers = [orjson.dumps(text(label)) for label in session.servers]
        self._templates: dict[tuple[int, ...], bytes] = {}
        """By pipe, direction, type and whether it is a control message: a line without what only it holds."""

    def _template(self, pipe: int, forth: int, kind: int, control: int) -> bytes:
        client, server = self._clients[pipe], self._servers[pipe]
        source, destination = (client, server) if forth else (server, client)
        number = NULL if self._session.logged else b"%d" % pipe
        names = b'"pipe":%b,"src":%b,"dst":%b,"type":"%b"' % (
            number,
            source,
            destination,
            type_name(kind).encode(),
        )
        times = b'{"kind":"message","index":%d,"time_ns":%d,"end_time_ns":%d,'
        told = b'"id":%%d,"request":%b,%%b"call":%%b,"housekeeping":%b,"control":%b,' % (
            TRUTH[is_request(kind)],
            TRUTH[control or kind in KEEPING],
            TRUTH[control],
        )
        template = times + names.replace(b"%", b"%%") + b"," + told + b"%b"
        self._templates[pipe, forth, kind, control] = template
        return template

    def before(self, rows: list[int], tails: list[bytes]) -> list[bytes]:
        """The lines of some rows, given what follows in each: one `%` each, of a template and columns."""
        failures = self._session.failures
        if failures:
            for at, row in enumerate(rows):
                if row in failures:
                    tails[at] = b'"failure":%b,%b' % (orjson.dumps(failure_json(failures[row])), tails[at])
        heads = self._session.heads(rows)
        known, make = self._templates.get, self._template
        kinds = zip(heads.pipe, heads.from_client, heads.type, heads.control, strict=True)
        templates = [known(kind) or make(*kind) for kind in kinds]
        partners = map(self._partners, heads.number, heads.answers, heads.answered_by, heads.latency_ns)
        calls = [self._calls.get(row, NULL) for row in rows]
        told = zip(
            heads.number, heads.time_ns, heads.end_time_ns, heads.id, partners, calls, tails, strict=True
        )
        return list(map(mod, templates, told))

    def _partners(self, index: int, answers: int, answered_by: int, latency_ns: int) -> bytes:
        """What answers what, how long that took, and what a request was sent for."""
        if answers != NONE:
            return (
                b'"answers":%d,"answered_by":null,"latency_ns":null,"parents":[],"parent_certain":true,'
                % answers
            )
        parents, certain = self._parents.get(index, OWN)
        if answered_by == NONE:
            told = b'"answers":null,"answered_by":null,"latency_ns":null,"parents":[%b],"parent_certain":%b,'
            return told % (parents, certain)
        told = b'"answers":null,"answered_by":%d,"latency_ns":%d,"parents":[%b],"parent_certain":%b,'
        return told % (answered_by, latency_ns, parents, certain)


def _calls(session: Session) -> dict[int, bytes]:
    """Of requests, who is called as a person says it, by row."""
    known: dict[str, bytes] = {}
    found = {}
    for row, name in names_of(session).items():
        if name.short not in known:
            known[name.short] = orjson.dumps(text(name.short))
        found[row] = known[name.short]
    return found


def _parents(causes: Causes) -> dict[int, tuple[bytes, bytes]]:
    """Of requests that were, or may have been, sent for others: these, and whether that is certain."""
    found = {index: (b"%d" % parent, b"true") for index, parent in causes.parents.items()}
    for index, doubt in causes.doubts.items():
        found[index] = b",".join([b"%d" % parent for parent in doubt.parents]), b"false"
    return found


def message_line(record: RpcRecord, session: Session, source: CaptureBytes, *, hashes: bool = True) -> bytes:
    """One message's line, as `JsonLines` writes it."""
    (line,) = _Heads(session).before([record.row], MessageRenderer(source, hashes=hashes).tails([record]))
    return line + b"\n"


def failure_json(failure: CallFailure) -> Json:
    """Why the caller of a request gave it up."""
    return {"reason": failure.reason, "time_ns": failure.time_ns, "text": text(failure.text)}


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
    """What comes after them: contexts, RRefs and findings, all or those that shown messages take
    part in; then what workers' own logs tell, and the summary.
    """
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
    """What is said of a filter: how many messages match, and how many other things are shown of how many."""
    return {"filter": text(shown.text), "matched": shown.count, "shown": dict(counts), "of": dict(of)}


def capture_json(capture: CaptureInfo) -> Json:
    """A `capture` line."""
    return {
        "kind": "capture",
        "schema": 1,
        "capture": capture.capture,
        "path": text(capture.path),
        "format": capture.format,
        "packets": capture.packets,
        "bytes": capture.bytes,
        "first_time_ns": capture.first_time_ns,
        "last_time_ns": capture.last_time_ns,
        "reader": capture.reader,
        "clock": None
        if capture.clock is None
        else {
            "offset_ns": capture.clock.offset_ns,
            "uncertainty_ns": capture.clock.uncertainty_ns,
            "connections": capture.clock.connections,
            "applied": capture.clock.certain,
        },
    }


def worker_json(worker: Worker) -> Json:
    """A `worker` line."""
    return {
        "kind": "worker",
        "name": None if worker.name is None else text(worker.name),
        "id": worker.id,
        "group": worker.group,
        "job": worker.job,
        "addresses": [text(address) for address in worker.addresses],
    }


def pipe_json(pipe: Pipe, session: Session) -> Json:
    """A `pipe` line; channels are keyed client device → server device, as the contract has it."""
    return {
        "kind": "pipe",
        "pipe": pipe.number,
        "client": text(session.clients[pipe.number]),
        "server": text(session.servers[pipe.number]),
        "transport": text(pipe.transport),
        "channels": {
            f"{_device(client)}->{_device(server)}": text(name) for (server, client), name in pipe.channels
        },
        "visible": pipe.visible.value,
        "reason": None if pipe.reason is None else text(pipe.reason),
    }


def _device(device: TpDevice) -> str:
    return text(f"{device.type}:{device.index}")


def context_json(context: AutogradContext) -> Json:
    """A `context` line."""
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
                "backward": list(edge.backward),
            }
            for edge in context.edges
        ],
        "cleanup": list(context.cleanup),
        "job": context.job,
    }


def rref_json(rref: RRef) -> Json:
    """An `rref` line."""
    return {
        "kind": "rref",
        "rref_id": list(rref.rref_id),
        "owner": None if rref.owner is None else text(rref.owner),
        "forks": [list(fork.fork_id) for fork in rref.forks],
        "deleted": [list(fork.fork_id) for fork in rref.forks if fork.deleted is not None],
        "live_forks": [list(fork.fork_id) for fork in rref.alive],
        "job": rref.job,
    }


def finding_json(finding: Finding) -> Json:
    """A `finding` line."""
    return {
        "kind": "finding",
        "code": finding.code,
        "severity": finding.severity,
        "messages": list(finding.messages),
        "workers": [text(worker) for worker in finding.workers],
        "text": text(finding.text),
        "remedy": None if finding.remedy is None else text(finding.remedy),
    }


def summary_json(totals: Totals, problems: tuple[Problem, ...]) -> Json:
    """The `summary` line; `problem_list` holds the problems that belong to no message."""
    return {
        "kind": "summary",
        "messages": totals.messages,
        "by_type": totals.by_type,
        "problems": totals.problems,
        "bytes": {
            "rpc": totals.rpc_bytes,
            "tensors": totals.tensor_bytes,
            "missing": totals.missing_bytes,
            "skipped": totals.skipped_bytes,
            "store": totals.store_bytes,
        },
        "problem_list": [{**problem_json(p), "location": location_json(p.location)} for p in problems],
    }
