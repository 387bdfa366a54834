"""When the same number of two logs is one job, and when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.pipeline import Decoding
from rpcinspect.rpclog.header import LoggedWorker
from rpcinspect.rpclog.join import OTHERS, JobNumbers
from tests.logs import convert
from tests.places import recorded


def worker(name: str, id: int | None, *addresses: str, job: int | str = 0) -> LoggedWorker:
    return LoggedWorker(name=name, id=id, job=job, addresses=addresses)


ONE = worker("a", 0, "10.0.0.1:1")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (worker("a", 0, "10.0.0.1:1"), True),
        (worker("a", None), True),
        (worker("b", 1, "10.0.0.1:2"), True),
        (worker("b", 0), False),
        (worker("a", 1), False),
        (worker("a", 0, "10.0.0.1:2"), False),
        (worker("a", 0, "10.0.0.1:2", "10.0.0.1:1"), True),
    ],
)
def test_what_contradicts(other: LoggedWorker, same: bool) -> None:
    numbers = JobNumbers()
    numbers.meet(0, [ONE])
    numbers.meet(1, [other])
    assert (numbers.of(0, 0), numbers.of(1, 0)) == (0, 0 if same else OTHERS)


def test_a_third_log_may_be_of_either_job() -> None:
    numbers = JobNumbers()
    for capture, its in enumerate((ONE, worker("x", 0), worker("x", 0), ONE, worker("y", 0))):
        numbers.meet(capture, [its])
    assert [numbers.of(capture, 0) for capture in range(5)] == [0, OTHERS, OTHERS, 0, OTHERS + 1]


def test_names_of_jobs_are_their_own() -> None:
    numbers = JobNumbers()
    numbers.meet(0, [worker("a", 0, job="0")])
    numbers.meet(1, [worker("b", 0, job="0")])
    assert numbers.of(1, "0") == "0"


def test_logs_of_two_jobs_are_two_jobs(tmp_path: Path) -> None:
    """Each alone is job 0, with workers 0 and 1."""
    paths = [tmp_path / "a.rpclog", tmp_path / "b.rpclog", tmp_path / "c.rpclog"]
    for path, name in zip(paths, ("basic_chain.pcap", "rref_relay.pcap", "basic_chain.pcap"), strict=True):
        path.write_bytes(convert(recorded(name)))
    with Decoding([str(path) for path in paths]) as decoding:
        count = len(list(decoding.records()))
        session = decoding.session
    alone = []
    for path in paths[:2]:
        with Decoding([str(path)]) as decoding:
            list(decoding.records())
            alone.append(decoding.session)
    assert count == sum(len(one.messages) for one in alone)
    assert len(session.workers) == sum(len(one.workers) for one in alone)
    assert {w.job for w in session.workers} == {0, 1}
    assert len(session.contexts) == sum(len(one.contexts) for one in alone)
