"""Whom an error of a connection is about."""

from __future__ import annotations

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.lost_workers import Loss, Losses
from rpcinspect.checks.wire_facts import WireFacts
from tests.checks.talks import closed
from tests.replayer.talks import Workers


def lost(*closed_at: int, error_ns: int = 1_000) -> Loss | None:
    """w0 has asked w1, w2, …, none of which answers: each closes its connection at a time."""
    workers = Workers(len(closed_at) + 1)
    for number in range(1, len(closed_at) + 1):
        workers.call(0, number, 10 * number, None)
    session = workers.finish()
    flows = [str(workers.pipes[number].flow) for number in range(1, len(closed_at) + 1)]
    ends = [end for flow, at in zip(flows, closed_at, strict=True) for end in closed(flow, at=at)]
    losses = Losses(CaptureEvidence(session, WireFacts(ends=tuple(ends))))
    return losses.told_by("EOF: end of file", 0, "w0", 0, error_ns)


def test_the_first_that_closed_its_connection_is_lost() -> None:
    for times, worker in (((500, 600), "w1"), ((600, 500), "w2")):
        found = lost(*times)
        assert found is not None
        assert (found.worker, found.how, found.caller) == (worker, "closed", "w0")


def test_who_closed_it_long_after_the_error_is_not() -> None:
    assert lost(1 << 40) is None
