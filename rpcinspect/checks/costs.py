"""`sequential-awaits` and `empty-results`: what calls cost that could be made otherwise.

In: records as they become complete; then the session. Out: findings, and only of what takes a part of the run
that its user would feel. Kept are numbers of calls and answers: see `contents`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rpcinspect.checks.contents import Contents
from rpcinspect.checks.empty import empty_results
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.notes import Note
from rpcinspect.checks.sequential import find_rounds, sequential_awaits
from rpcinspect.checks.shares import Shares
from rpcinspect.checks.stage import Stage
from rpcinspect.checks.turns import turns
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, Session
from rpcinspect.tcp.ranges import CaptureBytes


class Costs(Stage):
    """See the module's text."""

    KINDS = frozenset(
        {MessageType.PYTHON_CALL, MessageType.SCRIPT_CALL, MessageType.PYTHON_RET, MessageType.SCRIPT_RET}
    )

    def __init__(self, source: CaptureBytes) -> None:
        self._contents = Contents(source)

    def feed(self, record: RpcRecord, note: Note) -> None:
        self._contents.feed(record, note)

    def indifferent(self, record: RpcRecord, note: Note) -> bool:
        return not self._contents.wants(record, note)

    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        calls = self._contents.calls()
        if not self._contents.any_empty and not _several_callees(run.session, calls):
            return
        found = turns(run.session, calls)
        shares = Shares(run.session)
        rounds = find_rounds(run, self._contents, found)
        yield from sequential_awaits(run, shares, rounds)
        told = {row for one in rounds for row in one.rows}
        yield from empty_results(run, shares, self._contents, found, told)


def _several_callees(session: Session, calls: Collection[int]) -> bool:
    """Whether somebody calls more than one worker."""
    pipes = {session.messages.pipe[row] for row in calls}
    pairs = {(session.jobs[pipe], session.clients[pipe], session.servers[pipe]) for pipe in pipes}
    return len({pair[:2] for pair in pairs}) < len(pairs)
