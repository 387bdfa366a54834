"""Who came late to init_rpc."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.startup import StartupSkew
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.session.model import Arrival, Finding, Worker
from tests.checks.talks import of_capture
from tests.session.records import Talk
from tests.truth import workload

STORE = "10.0.0.1:29500"


def came(*seconds: float | None, group: int = 0, job: int = 0, pause: float = 0.01) -> list[Worker]:
    """Workers w0, w1, … that connected to the store then."""
    return [
        Worker(
            name=f"w{number}",
            id=number,
            group=group,
            job=job,
            addresses=(),
            arrival=None
            if at is None
            else Arrival(store=STORE, time_ns=round(at * 1e9), pause_ns=round(pause * 1e9)),
        )
        for number, at in enumerate(seconds)
    ]


def skew(workers: Sequence[Worker], refused: Sequence[float] = (), store: str = STORE) -> list[Finding]:
    session = replace(Talk().finish(), workers=tuple(workers))
    wire = WireFacts(refused=tuple((store, round(at * 1e9)) for at in refused))
    return list(StartupSkew().finish(CaptureEvidence(session, wire)))


@pytest.mark.parametrize(("name", "late"), [("costs/one_by_one", "worker2"), ("costs/first_late", "worker0")])
def test_bundled_jobs(name: str, late: str) -> None:
    """As long after the first one as workers say by their own clocks."""
    first, *_, last = sorted(workload(name).of("comes"), key=lambda event: event["time_ns"])
    [finding] = [finding for finding in of_capture(name)[1] if finding.code == "startup-skew"]
    assert finding.severity == "info"
    assert (last["worker"],) == finding.workers == (late,)
    [seconds] = re.findall(r"([\d.]+) s after the first", finding.text)
    assert float(seconds) == pytest.approx((last["time_ns"] - first["time_ns"]) / 1e9, abs=0.1)


def test_whoever_connects_last_is_late() -> None:
    [finding] = skew(came(1, 1.2, 3.5, 1.1))
    assert finding.workers == ("w2",)
    assert "2.5 s after the first: the 3 others waited for it" in finding.text
    assert skew(came(1, 1.9, 1.1)) == []


def test_each_group_of_a_job() -> None:
    [finding] = skew([*came(0, 0.1), *came(10, 12, group=1)])
    assert finding.workers == ("w1",)
    assert "init_rpc of group 1, 2 s after" in finding.text


def test_the_host_of_the_store() -> None:
    """Others that it lets in after their pause are not late for that."""
    [finding] = skew(came(13, 14.5, 13.2), [10, 10.4, 11, 12, 12.8])
    assert finding.workers == ("w0",)
    assert "w0 came to init_rpc 3 s after the first worker tried to reach its store" in finding.text


def test_whoever_comes_when_nobody_pauses_any_more() -> None:
    [finding] = skew(came(10.3, 10.6, 15), [10])
    assert (finding.workers, "5 s after the first" in finding.text) == (("w2",), True)


def test_a_host_that_stood_still() -> None:
    """Nobody was heard of for as long: a worker that was refused may have waited to try again."""
    assert skew(came(10.3, 10.6, 15, pause=4), [10]) == []
    assert skew(came(10.3, 10.6, 15, pause=4)) != []  # nobody was refused: it was not there before


def test_somebody_who_gave_up_long_before() -> None:
    assert skew(came(100, 100.2), [10, 10.5, 11]) == []
    assert skew(came(20, 20.2), [19.9], "10.0.0.9:1") == []


def test_where_not_all_are_known() -> None:
    assert skew(came(1, None, 9)) == []
    assert skew(came(1, 9)[1:]) == []
    assert skew(came(1)) == []


@pytest.mark.parametrize("name", ["reinit", "costs/at_once", "torch/dyn"])
def test_nobody_is_late(name: str) -> None:
    assert [finding for finding in of_capture(name)[1] if finding.code == "startup-skew"] == []
