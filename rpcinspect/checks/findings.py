"""The stage that makes the findings: every check sees each message once and speaks in the end.

In: records as they become complete, after the session's builder had them; then the session and what the TCP
stage noted. Out: `Finding`s, errors first, those of a severity in the order of the table at the foot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rpcinspect.checks.capture_faults import CaptureFaults, NoRpc
from rpcinspect.checks.check import Check
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
from rpcinspect.session.model import Finding, Session
from rpcinspect.session.provenance import MessageKind, Provenance
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.unexpected import unexpected

MAX_KNOWN = 512
"""Patterns that are remembered."""
SEVERITIES = ("error", "warning", "info")
"""What stops a run is told before what may."""

T = TypeVar("T")


class Findings:
    """The stage: `feed` every record, then `finish`. A check that fails against expectation is left out, and
    the others go on.
    """

    def __init__(self, provenance: Provenance, source: CaptureBytes, *, audit: bool = True) -> None:
        """`provenance` of the builder, which must be fed first; `source` for the bytes of gradients; `audit`:
        with findings of what pickles would run, which takes a walk through each of them.
        """
        self._provenance = provenance
        self.problems: list[Problem] = []
        """Why a check was left out."""
        self._known: dict[tuple[Pattern, int, bool], Sequence[Check]] = {}
        """(pattern, pipe, whether the client sends) → the checks that want each such message."""
        checks = [make(source) for make in CHECKS]
        self._use([check for check in checks if audit or not isinstance(check, UnsafePickles)])

    def _use(self, checks: list[Check]) -> None:
        self._checks = checks
        # a method that a check does not override is not called
        feeding = [check for check in checks if type(check).feed is not Check.feed]
        self._checks_of = {
            int(kind): [c for c in feeding if c.KINDS is None or kind in c.KINDS] for kind in MessageType
        }
        self._checks_of_all = [check for check in feeding if check.KINDS is None]
        self._known.clear()

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
        """Takes records. Of the messages of a pattern most checks want to see only the first."""
        for record in records:
            kind, pattern = self._provenance.kind_of(record.row), record.pattern
            if pattern is None:
                self._look(record, kind)
                continue
            key = pattern, record.tp.pipe.number, record.tp.from_client
            checks = self._known.get(key)
            if checks is None:
                checks = self._look(record, kind)
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[key] = checks
                continue
            for check in checks:
                try:  # not `_ask`: nearly every message comes here
                    check.feed(record, kind)
                except Exception as error:
                    self._leave_out(check, error, record)

    def _look(self, record: RpcRecord, kind: MessageKind) -> list[Check]:
        """Shows a message to every check that wants its kind. Returns those for which others of its pattern
        matter."""
        checks = self._checks_of.get(kind.type, self._checks_of_all)
        return [c for c in checks if self._ask(c, c.feed, record, record, kind)]

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


CHECKS: tuple[Callable[[CaptureBytes], Check], ...] = (
    lambda source: CaptureFaults(),
    lambda source: FailedInit(),
    lambda source: NoRpc(),
    lambda source: ErrorResponses(),
    lambda source: LostGradients(),
    lambda source: UnansweredRequests(),
    lambda source: UncoveredDevices(),
    lambda source: StaleGradients(),
    lambda source: PlainSteps(),
    lambda source: DetachedTensors(),
    lambda source: PasslessContexts(),
    lambda source: LeakedContexts(),
    lambda source: LeakedRRefs(),
    lambda source: UnexpectedEnvelopes(),
    lambda source: ZeroGradients(source),
    lambda source: NonfiniteTensors(source),
    lambda source: UnsafePickles(),
    lambda source: StartupSkew(),
    lambda source: Costs(source),
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
