"""The stage that makes the findings: every family sees each message once and speaks in the end.

In: records as they become complete, after the session's builder had them; then the session and what the TCP
stage noted. Out: `Finding`s, errors first, those of a severity in the order of the table at the foot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from rpcinspect.checks.capture_faults import CaptureFaults
from rpcinspect.checks.costs import Costs
from rpcinspect.checks.detached import DetachedTensors
from rpcinspect.checks.devices import DeviceMaps
from rpcinspect.checks.edges import LostGradients
from rpcinspect.checks.envelopes import UnexpectedEnvelopes
from rpcinspect.checks.errors import ErrorResponses
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.failed_init import FailedInit
from rpcinspect.checks.leaks import LeakedContexts, LeakedRRefs
from rpcinspect.checks.no_rpc import NoRpc
from rpcinspect.checks.notes import Note, Pairs, note_of
from rpcinspect.checks.passless import PasslessContexts
from rpcinspect.checks.plain_steps import PlainSteps
from rpcinspect.checks.stage import Stage
from rpcinspect.checks.stale import StaleGradients
from rpcinspect.checks.startup import StartupSkew
from rpcinspect.checks.unanswered import UnansweredRequests
from rpcinspect.checks.unsafe_pickle import UnsafePickles
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.checks.zeros import ZeroGradients
from rpcinspect.errors import Location, Problem
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.patterns import Pattern
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, MessageColumns, Session
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.unexpected import unexpected

MAX_KNOWN = 512
SEVERITIES = ("error", "warning", "info")
"""What stops a run is told before what may."""

T = TypeVar("T")


class _Known(Struct, eq=False):
    """What is known of the messages of one pattern, pipe and direction, from the first of them."""

    note: Note
    stages: Sequence[Stage]
    """Those that want to see each of them."""


class Findings:
    """The stage: `feed` every record, then `finish`. A family that fails against expectation is left out, and
    the others go on.
    """

    def __init__(self, columns: MessageColumns, source: CaptureBytes, *, audit: bool = True) -> None:
        """`columns` of the builder, which must be fed first; `source` for the bytes of gradients; `audit`:
        with findings of what pickles would run, which takes a walk through each of them.
        """
        self._columns = columns
        self._pairs = Pairs(columns)
        self.problems: list[Problem] = []
        """Why a family was left out."""
        self._known: dict[tuple[Pattern, int, int], _Known] = {}
        """By pattern, pipe and direction."""
        self._known_pairs: dict[tuple[Note, Note], Sequence[Stage]] = {}
        """By the notes of a request and its answer: the stages that want to see each of them."""
        stages = [make(columns, source, self._pairs) for make in STAGES]
        self._use([stage for stage in stages if audit or not isinstance(stage, UnsafePickles)])

    def _use(self, stages: list[Stage]) -> None:
        self._stages = stages
        # a method that a stage does not override is not called
        feeding = [stage for stage in stages if type(stage).feed is not Stage.feed]
        self._stages_of = {
            int(kind): [s for s in feeding if s.KINDS is None or kind in s.KINDS] for kind in MessageType
        }
        self._stages_of_all = [stage for stage in feeding if stage.KINDS is None]
        self._pair_stages = [stage for stage in stages if type(stage).pair is not Stage.pair]
        self._known.clear()
        self._known_pairs.clear()

    def _ask(self, stage: Stage, ask: Callable[..., T], record: RpcRecord | None, *args: object) -> T | None:
        """What a stage answers; None from one that fails, at this record, and is left out from now on."""
        try:
            return ask(*args)
        except Exception as error:
            self._leave_out(stage, error, record)
            return None

    def _leave_out(self, stage: Stage, error: Exception, record: RpcRecord | None) -> None:
        where = Location() if record is None else record.location
        self.problems.append(unexpected(error, "finding", where))
        self._use([other for other in self._stages if other is not stage])

    def feed(self, records: Sequence[RpcRecord]) -> None:
        """Takes records whose rows follow each other. Of the messages of a pattern most stages want to see
        only the first.
        """
        if not records:
            return
        known_of, join, columns = self._known, self._pairs.join, self._columns
        first, end = records[0].row, records[-1].row + 1
        pipes, forth = columns.pipe[first:end], columns.from_client[first:end]
        partners = columns.partner[first:end]
        for row, (record, pipe, way, partner) in enumerate(
            zip(records, pipes, forth, partners, strict=True), first
        ):
            pattern = record.pattern
            if pattern is None:
                note = self._look(record)[0]
            else:
                known = known_of.get((pattern, pipe, way))
                if known is None:
                    known = self._learn((pattern, pipe, way), record)
                else:
                    for stage in known.stages:
                        try:
                            stage.feed(record, known.note)
                        except Exception as error:
                            self._leave_out(stage, error, record)
                note = known.note
            other = join(row, partner, note)
            if other is not None:
                if way:
                    self._feed_pair(record, row, note, partner, other)
                else:
                    self._feed_pair(record, partner, other, row, note)

    def _look(self, record: RpcRecord) -> tuple[Note, list[Stage]]:
        """Lets every stage that wants its kind see a message."""
        try:
            note = note_of(record)
        except Exception as error:
            record.give_up(error, "finding")
            note = note_of(record)
        stages = self._stages_of.get(note.kind, self._stages_of_all)
        for stage in stages:
            self._ask(stage, stage.feed, record, record, note)
        return note, stages

    def _learn(self, key: tuple[Pattern, int, int], record: RpcRecord) -> _Known:
        note, stages = self._look(record)
        wanting = [
            stage
            for stage in stages
            if self._ask(stage, stage.indifferent, record, record, note) is False and stage in self._stages
        ]
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        known = self._known[key] = _Known(note, wanting)
        return known

    def _feed_pair(self, record: RpcRecord, row: int, request: Note, answer_row: int, answer: Note) -> None:
        """Lets the stages see a request and its answer: of two patterns those that are not indifferent."""
        stages: Sequence[Stage] = self._pair_stages
        if request.repeats and answer.repeats:
            known = self._known_pairs.get((request, answer))
            stages = self._learn_pair(record, request, answer) if known is None else known
        for stage in stages:
            self._ask(stage, stage.pair, record, row, request, answer_row, answer)

    def _learn_pair(self, record: RpcRecord, request: Note, answer: Note) -> Sequence[Stage]:
        wanting = [
            stage
            for stage in self._pair_stages
            if self._ask(stage, stage.indifferent_pair, record, request, answer) is False
        ]
        if len(self._known_pairs) >= MAX_KNOWN:
            self._known_pairs.clear()
        self._known_pairs[request, answer] = wanting
        return wanting

    def finish(self, session: Session, wire: WireFacts) -> tuple[Finding, ...]:
        """Every finding."""
        run = CaptureEvidence(session, wire)
        found: list[Finding] = []
        for stage in self._stages:
            found += self._ask(stage, partial(_finished, stage, run), None) or ()
        return tuple(sorted(found, key=lambda one: SEVERITIES.index(one.severity)))


def _finished(stage: Stage, run: CaptureEvidence) -> list[Finding]:
    return list(stage.finish(run))


STAGES: tuple[Callable[[MessageColumns, CaptureBytes, Pairs], Stage], ...] = (
    lambda columns, source, pairs: CaptureFaults(),
    lambda columns, source, pairs: FailedInit(),
    lambda columns, source, pairs: NoRpc(),
    lambda columns, source, pairs: ErrorResponses(),
    lambda columns, source, pairs: LostGradients(),
    lambda columns, source, pairs: UnansweredRequests(pairs, columns),
    lambda columns, source, pairs: DeviceMaps(columns),
    lambda columns, source, pairs: StaleGradients(),
    lambda columns, source, pairs: PlainSteps(),
    lambda columns, source, pairs: DetachedTensors(columns),
    lambda columns, source, pairs: PasslessContexts(),
    lambda columns, source, pairs: LeakedContexts(),
    lambda columns, source, pairs: LeakedRRefs(),
    lambda columns, source, pairs: UnexpectedEnvelopes(columns),
    lambda columns, source, pairs: ZeroGradients(columns, source),
    lambda columns, source, pairs: UnsafePickles(),
    lambda columns, source, pairs: StartupSkew(),
    lambda columns, source, pairs: Costs(source),
)
"""Every family; a new one is one line."""
