"""Logs, in which processes wrote of their own messages, → `TpMessage`s.

In: open captures that are logs. Out: what any `MessageSource` gives. Only loaded where there is a log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rpcinspect.capture import CaptureReader, LogBlock
from rpcinspect.checks.wire_facts import ConnectionEnd, WireFacts
from rpcinspect.rpclog.header import LoggedFailure, LoggedProcess, LoggedWorker, LogJob
from rpcinspect.rpclog.join import LogJoin
from rpcinspect.session.identity import IdentityEvidence
from rpcinspect.session.model import WorkerIdentities
from rpcinspect.session.workers import resolve_logged_workers
from rpcinspect.sources.source import MessageSource, ReadWatch, SourceFacts, read_of
from rpcinspect.tcp.clocks import Vantage
from rpcinspect.tensorpipe.records import TpMessage


class LogFacts(SourceFacts, kw_only=True):
    """What logs tell beside messages."""

    jobs: tuple[LogJob, ...]
    workers: tuple[LoggedWorker, ...]
    processes: tuple[LoggedProcess, ...]
    failures: tuple[tuple[int, LoggedFailure], ...]

    @property
    def failed(self) -> Collection[tuple[int, LoggedFailure]]:
        return self.failures

    @property
    def count(self) -> int:
        return len(self.workers) + len(self.processes)

    def identities(self, evidence: IdentityEvidence) -> WorkerIdentities:
        return resolve_logged_workers(self.pipes, self.jobs, self.workers, evidence, self.processes)


class LogSource(MessageSource):
    """Logs of the processes of one run."""

    def __init__(self, readers: Sequence[CaptureReader], watch: ReadWatch) -> None:
        self._readers = readers
        self._watch = watch
        self._join = LogJoin()
        self.pipes = self._join.pipes

    def messages(self) -> Iterator[list[TpMessage]]:
        for reader in self._readers:
            for block in reader.blocks():
                if self._watch.stopped(reader.index):
                    break
                assert isinstance(block, LogBlock)
                yield self._join.feed(block)

    @property
    def facts(self) -> int:
        return len(self._join.workers) + len(self._join.processes)

    def identities(self, evidence: IdentityEvidence) -> WorkerIdentities:
        join = self._join
        return resolve_logged_workers(join.pipes, join.jobs, join.workers, evidence, join.processes)

    def told(self) -> LogFacts:
        join = self._join
        return LogFacts(
            pipes=tuple(join.pipes),
            wire=log_facts(join),
            problems=(*(one for reader in self._readers for one in reader.problems), *join.problems),
            sums=(join.rpc_bytes, join.tensor_bytes, 0, 0),
            unread={},
            clocks=(None,) * len(self._readers),
            vantages=(Vantage(),) * len(self._readers),
            jobs=tuple(join.jobs),
            workers=tuple(join.workers),
            processes=tuple(join.processes),
            failures=tuple(join.failed),
        )

    @property
    def progress(self) -> tuple[int, int | None]:
        return read_of(self._readers)


def log_facts(join: LogJoin) -> WireFacts:
    """Returns losses and ends as logs have them, by the flows that stand for pipes. After a damaged record,
    any flow may lack messages."""
    flows = [pipe.flow for pipe in join.pipes]
    dropped = [flows[number] if request else flows[number].reversed for number, request in sorted(join.lost)]
    damaged = [*flows, *[flow.reversed for flow in flows]] if join.damaged else dropped
    ends = tuple(
        ConnectionEnd(
            flow=str(pipe.flow),
            begin_ns=min(pipe.first_ns, end.time_ns),
            last_ns=max(pipe.first_ns, end.time_ns),
            by_client=end.by == "src",
            how=end.how,
            time_ns=end.time_ns,
        )
        for pipe, end in join.ends
    )
    return WireFacts(
        damaged=frozenset(map(str, damaged)),
        ends=ends,
        dropped=tuple((flow.source.host, flow.destination.host) for flow in dropped),
    )
