"""What happened between whom: the plain results of a session, as contract lines and views show them.

Messages are kept as columns (one of 30,000 messages must not cost an object that stays), everything else as
frozen records. Message numbers in these records are *indexes*: positions in the order of time.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from rpcinspect.problems import Problem
from rpcinspect.rpc.questions import KEEPING
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.session.provenance import Id, Provenance
from rpcinspect.tcp.clocks import ClockOffset, Vantage
from rpcinspect.tensorpipe.records import Pipe

NONE = -1


class CaptureInfo(Struct, frozen=True, kw_only=True):
    """A file of the session."""

    capture: int
    path: str
    format: str
    compression: str | None = None
    """`gzip` or `zstd`; places in the file are places in what it unpacks to."""
    packets: int
    bytes: int
    first_time_ns: int | None
    last_time_ns: int | None
    """Both by the first capture's clock, as far as that is known."""
    reader: str
    clock: ClockOffset | None = None
    """How its clock differs from the first capture's; None where no packet is in both."""
    vantage: Vantage = Vantage()
    problem: str | None = None
    """Why there is more of it than was read."""


class Arrival(Struct, frozen=True, kw_only=True):
    """A worker's way into `init_rpc`: it connects to the store, where it then waits for the others."""

    store: str
    """Where that listens, `ip:port`."""
    time_ns: int
    """First packet of the connection."""
    pause_ns: int = 0
    """The longest time in which it said nothing to the store before all had come. Newer releases of PyTorch
    ask it every few milliseconds: then a long one tells of a host that stood still."""


class Worker(Struct, frozen=True, kw_only=True):
    """A worker, as far as the capture identifies it."""

    name: str | None
    id: int | None
    group: int
    """Which init_rpc of its job, from 0: the N of `rpc_prefix_N` in the store."""
    addresses: tuple[str, ...]
    """Where it listens on the network."""
    elsewhere: tuple[str, ...] = ()
    """Where it listens by transports that no network knows, as published."""
    job: int = 0
    """Which job of the capture; names and ids are unique in a job only."""
    arrival: Arrival | None = None
    """None where that was not captured, and in groups without a fixed size, which wait for nobody."""
    ended: ProcessEnd | None = None
    """How its process ended; None where no recorder tells of that."""

    @property
    def label(self) -> str:
        """Returns how a session calls it: its name, else `worker:ID`, else the address where it listens."""
        if self.name is not None:
            return self.name
        if self.id is not None:
            return f"worker:{self.id}"
        return self.addresses[0] if self.addresses else "?"


class Edge(Struct, frozen=True, kw_only=True, gc=False):
    """A send function and its recv function: one forward message, and the gradients that came back for it."""

    autograd_message_id: int
    sender: str
    receiver: str
    forward: int
    """Index of the forward message."""
    tensors_requiring_grad: int
    backward: tuple[int, ...]
    """Indexes of the BACKWARD_AUTOGRAD_REQ messages that carried its gradients."""


class AutogradContext(Struct, frozen=True, kw_only=True, gc=False):
    """A distributed autograd context."""

    context_id: int
    creator: str
    workers: tuple[str, ...]
    edges: tuple[Edge, ...]
    cleanup: tuple[int, ...]
    job: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """(job, context id): ids are unique in a job only."""
        return self.job, self.context_id


class Fork(Struct, frozen=True, kw_only=True, gc=False):
    """A fork of an RRef, as far as messages about it were captured."""

    fork_id: Id
    holder: str | None
    """The worker that got it."""
    giver: str | None
    """The worker that sent it; None of a fork that came with the RRef itself."""
    begin: int | None
    """Index of the message that made the RRef, or brought the fork."""
    requested: int | None
    """RREF_FORK_REQUEST, from the holder to the owner."""
    accepted: int | None
    """RREF_CHILD_ACCEPT, from the holder to the giver."""
    deleted: int | None
    """RREF_USER_DELETE."""
    acknowledged: int | None
    """The owner's answer to that."""
    state: str
    """`alive`, `deleted`, or `home`: it was sent to the owner, or is the owner's own."""


class RRef(Struct, frozen=True, kw_only=True, gc=False):
    """A remote reference."""

    rref_id: Id
    job: int = 0
    owner: str | None
    creator: str | None
    """The worker that called `remote`; the owner of one that was made from a local value."""
    what: str | None
    """The function whose result it is; None of a local value, or where the call was not captured."""
    created: int | None
    """Index of the remote call."""
    confirmed: int | None
    """Index of its answer."""
    failed: bool
    """The function raised: whoever fetches the value gets the error."""
    forks: tuple[Fork, ...]
    """By id."""
    fetches: tuple[int, ...]
    """Indexes of the requests for its value."""
    backwards: tuple[int, ...]
    """Indexes of RREF_BACKWARD_REQs."""

    @property
    def deleted(self) -> tuple[Fork, ...]:
        """Forks whose delete was seen."""
        return tuple(fork for fork in self.forks if fork.deleted is not None)

    @property
    def alive(self) -> tuple[Fork, ...]:
        """Forks whose end was not seen."""
        return tuple(fork for fork in self.forks if fork.state == "alive")


class CallFailure(Struct, frozen=True, kw_only=True):
    """The reason why a call ended at its caller without an answer; only logs have it."""

    caller: str
    callee: str
    pipe: int
    type: int | None
    """Of the request, as far as it is known."""
    id: int
    time_ns: int
    reason: str
    """`timeout`, `connection` (it broke) or `error` (of the agent)."""
    text: str
    """The error that the caller got."""


class Finding(Struct, frozen=True, kw_only=True):
    """Something worth knowing of the run or of the capture; codes and severities are the contract's."""

    code: str
    severity: str
    text: str
    remedy: str | None = None
    messages: tuple[int, ...] = ()
    workers: tuple[str, ...] = ()


class LogEvent(Struct, frozen=True, kw_only=True):
    """A line about RPC in a worker's own text log, as `checks/worker_logs.py` reads it."""

    file: int
    """Index of the log among those that were named."""
    line: int
    """From 1."""
    worker: str | None
    """Who says it; None where nothing tells."""
    peer: str | None
    what: str
    """A name of `workerlog/patterns.py`."""
    lost: bool
    """Whether the line says that the peer's end of a connection is gone."""
    severity: str | None
    time_ns: int | None
    """In the capture's time; None where it can't be told."""
    placed: str | None
    """How the time is known: `zone` (the line has one), `fit` (of the log as a whole), `second` (the same,
    but no more than its second) or `connection` (the line has no time: that of the end of the connection that
    it speaks of)."""
    message: int | None
    """Index of the request that it names."""
    type: str | None
    """Name of the message type that it gives as a number."""
    text: str


class LogFile(Struct, frozen=True, kw_only=True):
    """A worker's text log."""

    path: str
    workers: tuple[str, ...]
    lines: int
    rpc_lines: int
    zone_s: int | None
    """East of Greenwich, of times without a zone; None where no zone fits, or none is needed."""
    matched: int
    """Lines whose time is near that of what they speak of in the capture."""
    uncertainty_ns: int | None
    """How far apart these are at most; None where there is none: then nobody has compared the clocks."""
    notes: tuple[str, ...]
    """What is strange about it."""


class WorkerLogs(Struct, frozen=True, kw_only=True):
    """All text logs of workers, and the lines about RPC in them."""

    files: tuple[LogFile, ...]
    events: tuple[LogEvent, ...]
    """In the order of time; a line without a time follows the line before it in its log."""


class Totals(Struct, frozen=True, kw_only=True):
    """Sums over the whole session, in messages and bytes."""

    messages: int
    by_type: dict[str, int]
    problems: int
    rpc_bytes: int
    tensor_bytes: int
    missing_bytes: int
    skipped_bytes: int
    store_bytes: int


class MessageHeads(NamedTuple):
    """Columns of messages without their content."""

    number: list[int]
    """Their indexes."""
    time_ns: list[int]
    end_time_ns: list[int]
    pipe: list[int]
    type: list[int]
    id: list[int]
    control: list[int]
    from_client: list[int]
    answers: list[int]
    """Index of the request; -1 where there is none."""
    answered_by: list[int]
    """Index of the answer; -1 where there is none."""
    latency_ns: list[int]
    """Of an answered request: from its first byte to the last one of its answer."""


class MessageColumns:
    """One row per message in the order of completion; `order` maps that to the order of time."""

    def __init__(self) -> None:
        self.time_ns = array("q")
        self.end_time_ns = array("q")
        self.capture = array("i")
        self.packet = array("q")
        self.offset = array("q")
        self.pipe = array("i")
        self.id = array("q")
        self.type = array("i")
        """Outermost message type."""
        self.from_client = array("b")
        self.control = array("b")
        self.partner = array("q")
        """Row of the answer of a request and of the request of an answer; -1 where there is none."""
        self._columns = tuple(vars(self).values())

    def extend(self, columns: Sequence[list[int]]) -> None:
        """Adds rows: their numbers in columns, in the order above."""
        for column, numbers in zip(self._columns, columns, strict=True):
            column.fromlist(numbers)

    def __len__(self) -> int:
        return len(self.time_ns)

    def latency_ns(self, row: int) -> int | None:
        """Returns the time from a request's first byte to its answer's last, for both; None without the other
        one."""
        partner = self.partner[row]
        if partner == NONE:
            return None
        request, answer = (row, partner) if self.from_client[row] else (partner, row)
        return max(0, self.end_time_ns[answer] - self.time_ns[request])

    def housekeeping(self) -> bytes:
        """Returns a byte per row, 1 for housekeeping: references, contexts, the agents' own calls."""
        kept = np.isin(np.asarray(self.type), list(KEEPING)) | (np.asarray(self.control) != 0)
        return bytes(kept.astype(np.int8))

    def order(self) -> NDArray[np.int64]:
        """Rows in the order of time; ties by capture, packet and offset in the stream."""
        columns = (self.offset, self.packet, self.capture, self.time_ns)
        return np.lexsort([np.asarray(column) for column in columns]).astype(np.int64)


class WorkerIdentities(Struct, frozen=True):
    """Who is at the ends of pipes: labels per pipe and the workers that are known."""

    clients: tuple[str, ...]
    """Label of the client of each pipe: name, `worker:ID` or `ip:port`."""
    servers: tuple[str, ...]
    workers: tuple[Worker, ...]
    jobs: tuple[int, ...]
    """Job of each pipe: ids of workers, contexts and RRefs are unique in one only."""
    names_of_ids: tuple[dict[int, str], ...]
    """Of each job the names of ids that one worker only has."""
    unsure_jobs: frozenset[int] = frozenset()
    """Jobs that may lack pipes, or have those of another: nothing follows from what they lack."""

    def by_id(self, worker_id: int, job: int = 0) -> str:
        """Label of the worker with this id."""
        known = self.names_of_ids[job] if job < len(self.names_of_ids) else {}
        return known.get(worker_id, f"worker:{worker_id}")

    def pipes_of(self, labels: Sequence[str]) -> dict[tuple[int, str], list[int]]:
        """Returns (job, worker) → the pipes at which it is the client or the server, as `labels` are."""
        found: dict[tuple[int, str], list[int]] = defaultdict(list)
        for pipe, member in enumerate(zip(self.jobs, labels, strict=True)):
            found[member].append(pipe)
        return found


class Session(WorkerIdentities, eq=False, kw_only=True, frozen=True):
    """All facts that are known after the last capture was read."""

    captures: tuple[CaptureInfo, ...]
    pipes: tuple[Pipe, ...]
    messages: MessageColumns
    provenance: Provenance
    """What each message needs and brings."""
    order: NDArray[np.int64]
    """Row of each index."""
    index: NDArray[np.int64]
    """Index of each row."""
    contexts: tuple[AutogradContext, ...]
    rrefs: tuple[RRef, ...]
    """RRefs with a known fork."""
    findings: tuple[Finding, ...]
    totals: Totals
    problems: tuple[Problem, ...] = field(default=())
    """Problems that belong to no message."""
    failures: dict[int, CallFailure] = field(default_factory=dict)
    """By the row of the request, which may have been answered too late nevertheless."""
    worker_logs: WorkerLogs | None = None
    """What workers' own text logs tell, where they were read beside the capture."""
    lost_calls: tuple[CallFailure, ...] = ()
    """Failures of requests that were not captured."""

    @property
    def logged(self) -> bool:
        """Returns whether the session was read from logs, which have no pipes and no packets."""
        return any(capture.reader == "log" for capture in self.captures)

    def with_problems(self, problems: Sequence[Problem]) -> Session:
        """Returns the session with more problems that belong to no message."""
        totals = replace(self.totals, problems=self.totals.problems + len(problems))
        return replace(self, problems=(*self.problems, *problems), totals=totals)

    def heads(self, rows: Sequence[int]) -> MessageHeads:
        """Returns the columns of some messages, without their content."""
        m = self.messages
        at: NDArray[np.int64] = np.asarray(rows, dtype=np.int64)
        partner, forth = np.asarray(m.partner)[at], np.asarray(m.from_client)[at]
        answers = np.where((partner < 0) | (forth != 0), NONE, self.index[partner])
        answered_by = np.where((partner < 0) | (forth == 0), NONE, self.index[partner])
        latency = np.maximum(np.asarray(m.end_time_ns)[partner] - np.asarray(m.time_ns)[at], 0)
        columns = (self.index, m.time_ns, m.end_time_ns, m.pipe, m.type, m.id, m.control)
        lists = [np.asarray(column)[at].tolist() for column in columns]
        return MessageHeads(*lists, *(one.tolist() for one in (forth, answers, answered_by, latency)))

    def source(self, row: int) -> str:
        """Label of the sender of a message."""
        pipe = self.messages.pipe[row]
        return self.clients[pipe] if self.messages.from_client[row] else self.servers[pipe]

    def destination(self, row: int) -> str:
        """Label of the receiver of a message."""
        pipe = self.messages.pipe[row]
        return self.servers[pipe] if self.messages.from_client[row] else self.clients[pipe]

    def job(self, row: int) -> int:
        """Job of a message."""
        return self.jobs[self.messages.pipe[row]]

    def answers(self, row: int) -> int | None:
        """Index of the request that this row answers."""
        partner = self.messages.partner[row]
        if partner == NONE or self.messages.from_client[row]:
            return None
        return int(self.index[partner])

    def indexes(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Indexes of rows, ascending."""
        return tuple(sorted(int(self.index[row]) for row in rows))
