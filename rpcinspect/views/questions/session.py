"""What is known of a session as tables: captures, workers, pipes, contexts, edges, references, findings.

In: records of the session. Out: columns, which lines of JSON, Parquet, text and pages have. Names are the
contract's; where one would be a word of SQL's, Parquet has PyTorch's longer name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rpcinspect.fields.phrases import (
    amount,
    duration,
    end_label,
    join_ends,
    packed,
    path_label,
    printable,
)
from rpcinspect.fields.plain import Picked, text
from rpcinspect.session.model import CaptureInfo, Fork, Session, Worker
from rpcinspect.session.words import lack_of_memory
from rpcinspect.tensorpipe.control_types import TpDevice
from rpcinspect.tensorpipe.records import Pipe
from rpcinspect.views.columns import Column, Style, Table, json_of, table
from rpcinspect.views.words import moment

if TYPE_CHECKING:
    from rpcinspect.run.run import RunModel

JOB = Column("job", "int32", title="job", right=True, unless="same", json=False)
"""People and Parquet have it earlier than JSON."""

_clock = Picked("offset_ns uncertainty_ns connections applied=certain")


def capture_format(capture: CaptureInfo) -> str:
    """How a file is written: `pcap, gzip`."""
    return f"{capture.format}, {capture.compression}" if capture.compression else capture.format


def lasts(capture: CaptureInfo) -> str:
    """Returns the duration from the first packet to the last."""
    first, last = capture.first_time_ns, capture.last_time_ns
    return "" if first is None or last is None else duration(last - first)


CAPTURE = (
    Column("capture", "int32", renamed="number"),
    Column("path", "text", title="capture", words=path_label),
    Column("format", "text", title="format", cell=lambda one, _: capture_format(one)),
    Column("packets", "int64", title="packets", right=True),
    Column("bytes", "int64", title="size", words=amount, right=True),
    Column("first_time_ns", "int64", title="first packet", words=lambda time_ns: moment(time_ns, 6)),
    Column("last_time_ns", "int64", title="lasts", cell=lambda one, _: lasts(one), right=True),
    Column("reader", "text"),
    Column("clock", of=lambda one: None if one.clock is None else _clock(one.clock)),
    Column("clock_offset_ns", "int64", "clock.offset_ns", json=False),
    Column("clock_uncertainty_ns", "int64", "clock.uncertainty_ns", json=False),
    Column("clock_applied", "bool", "clock.certain", json=False),
    Column("problem", "text", json=False),
)


def _addresses(addresses: Iterable[str]) -> str:
    return printable(", ".join(addresses)) or "?"


WORKER = (
    Column("name", "text", title="worker", cell=lambda one, _: end_label(one.label)),
    Column("id", "int64", title="id", cell=lambda one, _: "?" if one.id is None else str(one.id)),
    Column("group", "int64", renamed="worker_group", title="group", unless="same"),
    Column("job", "int32", title="job", right=True, unless="same"),
    Column("addresses", "list of text", title="listens at", words=_addresses),
)

ENDED = Column(
    title="its process",
    of="ended",
    words=lambda ended: printable(f"{ended}{lack_of_memory(ended)}"),
    gives_way=True,
    unless="empty",
)
"""How a worker's process ended, where a recorder tells of that."""


def _ended_at(worker: Worker, run: RunModel) -> str:
    return "" if worker.ended is None else run.seconds(worker.ended.time_ns)


ENDED_AT = Column(title="ended at second", cell=_ended_at, right=True, unless="empty")


def ended_style(worker: Worker) -> Style:
    """Whether a worker's process came to a bad end."""
    return "bad" if worker.ended is not None and worker.ended.over and not worker.ended.well else ""


def workers_table(run: RunModel, indexes: Sequence[int], most: int | None = None) -> Table:
    """Returns the workers, with how many of some messages each has sent, and how its process ended."""
    session = run.session
    columns, rows = session.messages, session.order[list(indexes)].tolist()
    sent: Counter[tuple[int, str]] = Counter()
    for (pipe, forth), count in Counter(
        (columns.pipe[row], columns.from_client[row]) for row in rows
    ).items():
        sent[session.jobs[pipe], (session.clients if forth else session.servers)[pipe]] += count
    shown = (
        *WORKER,
        Column(title="elsewhere", of="elsewhere", words=", ".join, unless="empty"),
        Column(title="sent", of=lambda one: sent[one.job, one.label], right=True),
        ENDED,
        ENDED_AT,
    )
    return table(shown, session.workers, run, style=ended_style, most=most)


class PipeEnds(Struct, frozen=True):
    """A pipe with the labels of who it joins."""

    pipe: Pipe
    client: str
    server: str
    job: int


def pipes_of(session: Session) -> list[PipeEnds]:
    """The pipes that were seen on a network."""
    ends = zip(session.pipes, session.clients, session.servers, session.jobs, strict=True)
    return [PipeEnds(*its) for its in ends if not its[0].logged]


def _channels(pipe: PipeEnds) -> dict[str, str]:
    """Keyed client device → server device, as the contract has it."""
    found = pipe.pipe.channels
    return {f"{_device(client)}->{_device(server)}": text(name) for (server, client), name in found}


def _names(names: Iterable[str]) -> str:
    return printable(", ".join(dict.fromkeys(names)))


def _device(device: TpDevice) -> str:
    return text(f"{device.type}:{device.index}")


PIPE = (
    Column("pipe", "int32", "pipe.number", "pipe", str, right=True),
    JOB,
    Column(title="client → server", cell=lambda one, _: join_ends(*map(end_label, (one.client, one.server)))),
    Column("client", "text"),
    Column("server", "text"),
    Column("transport", "text", "pipe.transport", "transport", printable),
    Column("channels", "map", _channels, "channels", lambda its: _names(its.values())),
    Column("visible", "text", "pipe.visible.value", "visible", str),
    Column("reason", "text", "pipe.reason", "why not all of it", printable),
)

EDGE = (
    Column("context_id", "int64", json=False),
    Column("job", "int32", json=False),
    Column("autograd_message_id", "int64"),
    Column("sender", "text"),
    Column("receiver", "text"),
    Column("forward", "int64"),
    Column("begin_ns", "int64", json=False),
    Column("end_ns", "int64", json=False),
    Column("tensors_requiring_grad", "int32"),
    Column("gradient_expected", "bool", json=False),
    Column("gradients", "int32", json=False),
    Column("backward", "list of int64"),
)
edge_json = json_of(EDGE)

EDGES = Column("edges", of=lambda context: [*map(edge_json, context.edges)])
CONTEXT = (
    Column("context_id", "int64", title="context", words=packed),
    JOB,
    Column("creator", "text", title="creator"),
    Column("workers", "list of text"),
    EDGES,
    Column("edges", "int32", lambda context: len(context.edges), json=False),
    Column("cleanup", "list of int64"),
    Column("job"),
)
"""What each context has, also where nobody asks for contexts."""

SPAN = (
    Column("begin_ns", "int64", title="seconds", cell=lambda one, run: run.seconds(one.begin_ns), right=True),
    Column("end_ns", "int64"),
    Column("duration_ns", "int64", lambda one: one.end_ns - one.begin_ns, "took", duration, right=True),
    Column("backward_ns", "int64"),
    Column("gradients_expected", "int32", "expected"),
    Column("gradients_came", "int32", "came"),
)
"""When it was: of spans and of graphs."""


def numbered(pair: Sequence[int]) -> str:
    """An id as people read it: who made it, and its number there."""
    return f"{pair[0]}:{pair[1]}"


def _forks(key: str, of: str) -> tuple[Column, Column]:
    """Ids of some forks: pairs in JSON, text in Parquet."""
    get = attrgetter(of)

    def ids(rref: Any) -> list[list[int]]:
        forks: Iterable[Fork] = get(rref)
        return [[*fork.fork_id] for fork in forks]

    return Column(key, of=ids), Column(
        key, "list of text", lambda one: [*map(numbered, ids(one))], json=False
    )


RREF = (
    Column("rref_id", title="rref", words=numbered),
    Column("rref_created_on", "int64", lambda rref: rref.rref_id[0], json=False),
    Column("rref_local_id", "int64", lambda rref: rref.rref_id[1], json=False),
    JOB,
    Column("owner", "text", title="owner", words=end_label),
    *_forks("forks", "forks"),
    *_forks("deleted", "deleted"),
    *_forks("live_forks", "alive"),
    Column("job"),
)
"""What each reference has, also where nobody asks for references."""

FINDING = (
    Column("code", "text"),
    Column("severity", "text"),
    Column("messages", "list of int64"),
    Column("workers", "list of text"),
    Column("first_worker", "text", lambda one: text(one.workers[0]) if one.workers else None, json=False),
    Column("text", "text"),
    Column("remedy", "text"),
)
"""The first worker stands alone too, since engines count the items of lists differently."""

capture_json = json_of((Column("schema", of=lambda _: 1), *CAPTURE), "capture")
worker_line = json_of(WORKER, "worker")
pipe_json = json_of(PIPE, "pipe")
context_json = json_of(CONTEXT, "context")
rref_json = json_of(RREF, "rref")
finding_json = json_of(FINDING, "finding")
ended_json = Picked("how status signal error time_ns pid oom_kills")


def worker_json(worker: Worker) -> dict[str, Any]:
    """Returns a `worker` line; `ended` where a recorder noted the end."""
    line = worker_line(worker)
    return line if worker.ended is None else {**line, "ended": ended_json(worker.ended)}
