"""What the checks ask before they say that something is missing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rpcinspect.checks.evidence import END_S, CaptureEvidence, due_s, usual_s
from rpcinspect.checks.wire_facts import WireFacts
from tests.checks.talks import SECOND, capture_until, closed
from tests.replayer.talks import Workers


def run(
    wire: WireFacts | None = None, until: int | None = None, *entries: object
) -> tuple[Workers, CaptureEvidence]:
    workers = Workers(2)
    for n in range(10):
        workers.call(0, 1, n * 100, n * 100 + 50)
    session = workers.finish(*entries)  # type: ignore[arg-type]
    if until is not None:
        session = replace(session, captures=(capture_until(until),))
    return workers, CaptureEvidence(session, wire or WireFacts())


def test_the_end_and_what_was_due_before() -> None:
    _, made = run()
    assert made.last_ns == 950
    assert made.usual_s == pytest.approx(50e-9)
    _, made = run(until=SECOND)
    assert made.last_ns == SECOND
    assert not made.cut_off(SECOND // 2)
    assert made.cut_off(SECOND // 2, usual_s=0.1)
    assert made.cut_off(SECOND - SECOND // 100)
    assert made.cut_off(SECOND // 2, until_ns=SECOND // 2 + SECOND // 100)


def test_an_empty_run() -> None:
    made = CaptureEvidence(Workers(1).finish(), WireFacts())
    assert (made.last_ns, made.usual_s) == (0, 0.0)


def test_what_was_lost_and_what_was_closed() -> None:
    workers, _ = run()
    forth = str(workers.pipes[1].flow)
    _, made = run(WireFacts(damaged=frozenset({forth}), ends=closed(forth, by_client=True, at=7)))
    assert (made.damaged(1, True), made.damaged(1, False)) == (True, False)
    assert (made.damaged_between("w0", "w1"), made.damaged_between("w1", "w0")) == (True, False)
    end = made.end(1)
    assert end is not None
    assert (end.time_ns, made.end(2)) == (7, None)
    assert made.left_ns == {(0, "w0"): 7}


def test_who_left_did_so_with_the_first_pipe_that_it_closed() -> None:
    workers = Workers(3)
    workers.call(0, 1, 0, 50)
    workers.call(0, 2, 10, 60)
    flows = [str(workers.pipes[number].flow) for number in (1, 2)]  # of w0 to w1 and to w2
    ends = closed(flows[0], by_client=True, at=9) + closed(flows[1], by_client=True, at=7)
    for told in (ends, ends[::-1]):
        assert CaptureEvidence(workers.finish(), WireFacts(ends=told)).left_ns == {(0, "w0"): 7}


def test_times_of_messages() -> None:
    _, made = run()
    assert (made.time_ns(2), made.end_ns(3), made.job_of(2)) == (100, 150, 0)


def test_nine_of_ten() -> None:
    assert usual_s([]) == 0.0
    assert usual_s([n * 1_000_000_000 for n in range(1, 11)]) == 10.0
    assert usual_s([1_000_000] * 99 + [9_000_000_000]) == 0.001


def test_what_is_due() -> None:
    assert due_s(0.0) == END_S
    assert due_s(1.0) == 10.0
