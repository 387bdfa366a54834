"""The stage that makes the findings: every family sees each message once and speaks in the end.

In: records as they become complete, after the session's builder had them; then the session and what the TCP
stage noted. Out: `Finding`s, in the order of the table at the foot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.patterns import Pattern
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, MessageColumns, Session
from rpcinspect.trace.capture_faults import CaptureFaults
from rpcinspect.trace.detached import DetachedTensors
from rpcinspect.trace.devices import DeviceMaps
from rpcinspect.trace.edges import LostGradients
from rpcinspect.trace.envelopes import UnexpectedEnvelopes
from rpcinspect.trace.errors import ErrorResponses
from rpcinspect.trace.leaks import LeakedContexts, LeakedRRefs
from rpcinspect.trace.notes import Note, Pairs, note_of
from rpcinspect.trace.run import Run
from rpcinspect.trace.stage import Stage
from rpcinspect.trace.stale import StaleGradients
from rpcinspect.trace.unanswered import UnansweredRequests
from rpcinspect.trace.unsafe_pickle import UnsafePickles
from rpcinspect.trace.wire_facts import WireFacts
from rpcinspect.trace.zeros import ZeroGradients
from rpcinspect.wire.ranges import CaptureBytes

MAX_KNOWN = 512

Feed: TypeAlias = Callable[[RpcRecord, Note], None]
PairFeed: TypeAlias = Callable[[int, Note, int, Note], None]


class _Known(Struct, eq=False):
    """What is known of the messages of one pattern, pipe and direction, from the first of them."""

    note: Note
    feeds: Sequence[Feed]
    """Of the stages that want to see each of them."""


class Findings:
    """The stage: `feed` every record, then `finish`."""

    def __init__(self, columns: MessageColumns, source: CaptureBytes) -> None:
        """`columns` of the builder, which must be fed first; `source` for the bytes of gradients."""
        self._columns = columns
        self._pairs = Pairs(columns)
        self._stages = [make(columns, source, self._pairs) for make in STAGES]
        # a method that a stage does not override is not called
        feeding = [stage for stage in self._stages if type(stage).feed is not Stage.feed]
        self._stages_of = {
            int(kind): [s for s in feeding if s.KINDS is None or kind in s.KINDS] for kind in MessageType
        }
        self._stages_of_all = [stage for stage in feeding if stage.KINDS is None]
        self._pair_stages = [stage for stage in self._stages if type(stage).pair is not Stage.pair]
        self._all_pairs = [stage.pair for stage in self._pair_stages]
        self._known: dict[tuple[Pattern, int, int], _Known] = {}
        """By pattern, pipe and direction."""
        self._pair_feeds: dict[tuple[Note, Note], Sequence[PairFeed]] = {}
        """By the notes of a request and its answer."""

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
                    for feed in known.feeds:
                        feed(record, known.note)
                note = known.note
            other = join(row, partner, note)
            if other is not None:
                if way:
                    self._feed_pair(row, note, partner, other)
                else:
                    self._feed_pair(partner, other, row, note)

    def _look(self, record: RpcRecord) -> tuple[Note, list[Stage]]:
        """Lets every stage that wants its kind see a message."""
        note = note_of(record)
        stages = self._stages_of.get(note.kind, self._stages_of_all)
        for stage in stages:
            stage.feed(record, note)
        return note, stages

    def _learn(self, key: tuple[Pattern, int, int], record: RpcRecord) -> _Known:
        note, stages = self._look(record)
        feeds = [stage.feed for stage in stages if not stage.indifferent(record, note)]
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        known = self._known[key] = _Known(note, feeds)
        return known

    def _feed_pair(self, row: int, request: Note, answer_row: int, answer: Note) -> None:
        """Lets the stages see a request and its answer: of two patterns those that are not indifferent."""
        feeds: Sequence[PairFeed] = self._all_pairs
        if request.repeats and answer.repeats:
            known = self._pair_feeds.get((request, answer))
            feeds = self._learn_pair(request, answer) if known is None else known
        for feed in feeds:
            feed(row, request, answer_row, answer)

    def _learn_pair(self, request: Note, answer: Note) -> Sequence[PairFeed]:
        feeds = [stage.pair for stage in self._pair_stages if not stage.indifferent_pair(request, answer)]
        if len(self._pair_feeds) >= MAX_KNOWN:
            self._pair_feeds.clear()
        self._pair_feeds[request, answer] = feeds
        return feeds

    def finish(self, session: Session, wire: WireFacts) -> tuple[Finding, ...]:
        """Every finding."""
        run = Run(session, wire)
        return tuple(finding for stage in self._stages for finding in stage.finish(run))


STAGES: tuple[Callable[[MessageColumns, CaptureBytes, Pairs], Stage], ...] = (
    lambda columns, source, pairs: CaptureFaults(),
    lambda columns, source, pairs: ErrorResponses(),
    lambda columns, source, pairs: UnansweredRequests(pairs, columns),
    lambda columns, source, pairs: LostGradients(),
    lambda columns, source, pairs: DeviceMaps(columns),
    lambda columns, source, pairs: StaleGradients(),
    lambda columns, source, pairs: DetachedTensors(columns),
    lambda columns, source, pairs: LeakedContexts(),
    lambda columns, source, pairs: LeakedRRefs(),
    lambda columns, source, pairs: UnexpectedEnvelopes(columns),
    lambda columns, source, pairs: ZeroGradients(columns, source),
    lambda columns, source, pairs: UnsafePickles(),
)
"""Every family; a new one is one line."""
