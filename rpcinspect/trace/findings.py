"""The stage that makes the findings: every family sees each message once and speaks in the end.

In: records as they become complete, after the session's builder had them; then the session and what the TCP
stage noted. Out: `Finding`s, in the order of the table at the foot.
"""

from __future__ import annotations

from collections.abc import Callable

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, MessageColumns, Session
from rpcinspect.trace.capture_faults import CaptureFaults
from rpcinspect.trace.detached import DetachedTensors
from rpcinspect.trace.devices import DeviceMaps
from rpcinspect.trace.edges import LostGradients
from rpcinspect.trace.envelopes import UnexpectedEnvelopes
from rpcinspect.trace.errors import ErrorResponses
from rpcinspect.trace.leaks import LeakedContexts, LeakedRRefs
from rpcinspect.trace.notes import Pairs, note_of
from rpcinspect.trace.run import Run
from rpcinspect.trace.stage import Stage
from rpcinspect.trace.stale import StaleGradients
from rpcinspect.trace.unanswered import UnansweredRequests
from rpcinspect.trace.unsafe_pickle import UnsafePickles
from rpcinspect.trace.wire_facts import WireFacts
from rpcinspect.trace.zeros import ZeroGradients
from rpcinspect.wire.ranges import CaptureBytes


class Findings:
    """The stage: `feed` every record, then `finish`."""

    def __init__(self, columns: MessageColumns, source: CaptureBytes) -> None:
        """`columns` of the session's builder, which must be fed first; `source` for the bytes of "
        "gradients."""
        self._pairs = Pairs(columns)
        self._stages = [make(columns, source, self._pairs) for make in STAGES]
        # a method that a stage does not override is not called
        feeding = [stage for stage in self._stages if type(stage).feed is not Stage.feed]
        self._feeds = {
            int(kind): [s.feed for s in feeding if s.KINDS is None or kind in s.KINDS] for kind in MessageType
        }
        self._feeds_of_all = [stage.feed for stage in feeding if stage.KINDS is None]
        self._pair_feeds = [stage.pair for stage in self._stages if type(stage).pair is not Stage.pair]

    def feed(self, record: RpcRecord) -> None:
        """Takes a record."""
        note = note_of(record)
        for feed in self._feeds.get(note.kind, self._feeds_of_all):
            feed(record, note)
        pair = self._pairs.feed(note)
        if pair is not None:
            for feed_pair in self._pair_feeds:
                feed_pair(*pair)

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
