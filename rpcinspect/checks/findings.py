"""The stage that makes the findings: every check sees each message once and speaks in the end.

In: records as they become complete, after the session's builder had them; then the session and what the TCP
stage noted. Out: `Finding`s, errors first, those of a severity in the order of the table at the foot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rpcinspect.checks.capture_faults import CaptureFaults, NoRpc
from rpcinspect.checks.check import Check, DigestPairs, MessageDigest, digest_of
from rpcinspect.checks.costs import Costs
from rpcinspect.checks.detached import DetachedTensors
from rpcinspect.checks.devices import UncoveredDevices
from rpcinspect.checks.edges import LostGradients, PasslessContexts
from rpcinspect.checks.envelopes import UnexpectedEnvelopes
from rpcinspect.checks.errors import ErrorResponses
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.failed_init import FailedInit
from rpcinspect.checks.leaks import LeakedContexts, LeakedRRefs
from rpcinspect.checks.nonfinite import NonfiniteTensors
from rpcinspect.checks.plain_steps import PlainSteps
from rpcinspect.checks.stale import StaleGradients
from rpcinspect.checks.startup import StartupSkew
from rpcinspect.checks.unanswered import UnansweredRequests
from rpcinspect.checks.unsafe_pickle import UnsafePickles
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.checks.zeros import ZeroGradients
from rpcinspect.problems import Location, Problem
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.patterns import Pattern
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, MessageColumns, Session
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.unexpected import unexpected

MAX_KNOWN = 512
UNKNOWN = True
"""Stands for the checks that want an exchange of which none was seen."""
SEVERITIES = ("error", "warning", "info")
"""What stops a run is told before what may."""

K = TypeVar("K")
T = TypeVar("T")


class Findings:
    """The stage: `feed` every record, then `finish`. A check that fails against expectation is left out, and
    the others go on.
    """

    def __init__(self, columns: MessageColumns, source: CaptureBytes, *, audit: bool = True) -> None:
        """`columns` of the builder, which must be fed first; `source` for the bytes of gradients; `audit`:
        with findings of what pickles would run, which takes a walk through each of them.
        """
        self._columns = columns
        self._pairs = DigestPairs(columns)
        self.problems: list[Problem] = []
        """Why a check was left out."""
        self._known: dict[tuple[Pattern, int, int], tuple[MessageDigest, Sequence[Check]]] = {}
        """(pattern, pipe, direction) → the digest of all such messages, and the checks that want each."""
        self._known_pairs: dict[tuple[MessageDigest, MessageDigest], Sequence[Check]] = {}
        """Digests of a request and its answer → the checks that want each such exchange."""
        checks = [make(columns, source, self._pairs) for make in CHECKS]
        self._use([check for check in checks if audit or not isinstance(check, UnsafePickles)])

    def _use(self, checks: list[Check]) -> None:
        self._checks = checks
        # a method that a check does not override is not called
        feeding = [check for check in checks if type(check).feed is not Check.feed]
        self._checks_of = {
            int(kind): [c for c in feeding if c.KINDS is None or kind in c.KINDS] for kind in MessageType
        }
        self._checks_of_all = [check for check in feeding if check.KINDS is None]
        self._exchange_checks = [check for check in checks if type(check).exchange is not Check.exchange]
        self._known.clear()
        self._known_pairs.clear()

    def _ask(self, check: Check, ask: Callable[..., T], record: RpcRecord | None, *args: object) -> T | None:
        """What a check answers; None from one that fails, at this record, and is left out from now on."""
        try:
            return ask(*args)
        except Exception as error:
            self._leave_out(check, error, record)
            return None

    def _leave_out(self, check: Check, error: Exception, record: RpcRecord | None) -> None:
        where = Location() if record is None else record.location
        self.problems.append(unexpected(error, "finding", where))
        self._use([other for other in self._checks if other is not check])

    def feed(self, records: Sequence[RpcRecord]) -> None:
        """Takes records whose rows follow each other. Of the messages of a pattern most checks want to see
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
            known = None if pattern is None else known_of.get((pattern, pipe, way))
            if known is None:
                digest, wanting = self._look(record)
                if pattern is not None:
                    _remember(known_of, (pattern, pipe, way), (digest, wanting))
            else:
                digest, checks = known
                for check in checks:
                    try:  # not `_ask`: nearly every message comes here
                        check.feed(record, digest)
                    except Exception as error:
                        self._leave_out(check, error, record)
            other = join(row, partner, digest)
            if other is None:
                continue
            if way:
                self._feed_exchange(record, row, digest, partner, other)
            elif self._known_pairs.get((other, digest), UNKNOWN):
                self._feed_exchange(record, partner, other, row, digest)

    def _look(self, record: RpcRecord) -> tuple[MessageDigest, list[Check]]:
        """Shows a message to every check that wants its kind. Returns the digest, and the checks for which
        others of its pattern matter."""
        try:
            digest = digest_of(record)
        except Exception as error:
            record.give_up(error, "finding")
            digest = digest_of(record)
        checks = self._checks_of.get(digest.kind, self._checks_of_all)
        return digest, [c for c in checks if self._ask(c, c.feed, record, record, digest)]

    def _feed_exchange(
        self, record: RpcRecord, row: int, request: MessageDigest, answer_row: int, answer: MessageDigest
    ) -> None:
        """Lets the checks see a request and its answer; of two patterns, those to which each matters."""
        repeats = request.repeats and answer.repeats
        known = self._known_pairs.get((request, answer)) if repeats else None
        checks = self._exchange_checks if known is None else known
        wanting = [c for c in checks if self._ask(c, c.exchange, record, row, request, answer_row, answer)]
        if repeats and known is None:
            _remember(self._known_pairs, (request, answer), wanting)

    def finish(self, session: Session, wire: WireFacts) -> tuple[Finding, ...]:
        """Returns every finding, errors first."""
        run = CaptureEvidence(session, wire)
        found: list[Finding] = []
        for check in self._checks:
            its = self._ask(check, lambda its: list(its.finish(run)), None, check) or []
            if check.WHOLE_JOB and session.unsure_jobs:
                its = [one for one in its if session.unsure_jobs.isdisjoint(map(run.job_of, one.messages))]
            found += its
        return tuple(sorted(found, key=lambda one: SEVERITIES.index(one.severity)))


def _remember(known: dict[K, T], key: K, value: T) -> None:
    """Keeps what is known of a pattern, of a limited number of them."""
    if len(known) >= MAX_KNOWN:
        known.clear()
    known[key] = value


CHECKS: tuple[Callable[[MessageColumns, CaptureBytes, DigestPairs], Check], ...] = (
    lambda columns, source, pairs: CaptureFaults(),
    lambda columns, source, pairs: FailedInit(),
    lambda columns, source, pairs: NoRpc(),
    lambda columns, source, pairs: ErrorResponses(),
    lambda columns, source, pairs: LostGradients(),
    lambda columns, source, pairs: UnansweredRequests(pairs, columns),
    lambda columns, source, pairs: UncoveredDevices(columns),
    lambda columns, source, pairs: StaleGradients(),
    lambda columns, source, pairs: PlainSteps(),
    lambda columns, source, pairs: DetachedTensors(columns),
    lambda columns, source, pairs: PasslessContexts(),
    lambda columns, source, pairs: LeakedContexts(),
    lambda columns, source, pairs: LeakedRRefs(),
    lambda columns, source, pairs: UnexpectedEnvelopes(columns),
    lambda columns, source, pairs: ZeroGradients(columns, source),
    lambda columns, source, pairs: NonfiniteTensors(source),
    lambda columns, source, pairs: UnsafePickles(),
    lambda columns, source, pairs: StartupSkew(),
    lambda columns, source, pairs: Costs(source),
)
"""Every check; a new one is one line."""

CODES = (
    *("failed-init", "no-rpc", "invisible-transport", "error-response", "unanswered-request"),
    *("missing-gradient", "dangling-send", "device-map-missing", "unsafe-pickle", "dangerous-call"),
    *("capture-gap", "truncated-packets", "conflicting-overlap", "lost-edge", "stale-gradient"),
    *("optimizer-without-gradients", "detached-parameter", "leaked-context", "leaked-rref"),
    *("unexpected-envelope", "nonfinite-tensor", "zero-gradient"),
    *("startup-skew", "sequential-awaits", "empty-results"),
)
"""Every code of a finding, what stops a run first."""
