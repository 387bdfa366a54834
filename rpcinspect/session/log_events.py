"""What workers' own text logs tell, as it joins a session: plain results, made in `trace/worker_logs.py`."""

from __future__ import annotations

from msgspec import Struct


class LogEvent(Struct, frozen=True, kw_only=True):
    """One line of a worker's log that speaks of RPC."""

    file: int
    """Index of the log among those that were named."""
    line: int
    """From 1."""
    worker: str | None
    """Who says it; None where nothing tells."""
    peer: str | None
    what: str
    """A name of `workerlog/said.py`."""
    lost: bool
    """It says that the peer's end of a connection is gone."""
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
    """One log."""

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
    """All of them."""

    files: tuple[LogFile, ...]
    events: tuple[LogEvent, ...]
    """In the order of time; a line without a time follows the line before it in its log."""
