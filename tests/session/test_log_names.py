"""Who is who in a log."""

from __future__ import annotations

from rpcinspect.rpclog.header import LoggedWorker, LogJob
from rpcinspect.session.identity import IdentityEvidence
from rpcinspect.session.model import WorkerIdentities
from rpcinspect.session.workers import resolve_logged_workers
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.records import MessageOrigin, Pipe


def roll(
    *ways: tuple[LogJob, str, str],
    told: tuple[LoggedWorker, ...] = (),
    evidence: IdentityEvidence | None = None,
) -> WorkerIdentities:
    nowhere = Flow(Endpoint("", 0), Endpoint("", 0))
    pipes = [
        Pipe(n, nowhere, client_name=src, server_name=dst, origin=MessageOrigin.LOG)
        for n, (_, src, dst) in enumerate(ways)
    ]
    return resolve_logged_workers(pipes, [job for job, _, _ in ways], told, evidence or IdentityEvidence())


def test_names_are_those_of_the_records() -> None:
    identities = roll((0, "a", "b"), (0, "b", "a"))
    assert identities.clients == ("a", "b")
    assert identities.servers == ("b", "a")
    assert [(w.name, w.id, w.addresses) for w in identities.workers] == [("a", None, ()), ("b", None, ())]


def test_ids_of_workers_that_the_log_tells_of() -> None:
    told = (LoggedWorker(name="b", id=0), LoggedWorker(name="a", id=1), LoggedWorker(name="a", id=1))
    identities = roll((0, "a", "b"), told=told)
    assert [(w.name, w.id) for w in identities.workers] == [("b", 0), ("a", 1)]
    assert identities.by_id(1) == "a"
    assert identities.by_id(2) == "worker:2"


def test_ids_that_messages_tell() -> None:
    evidence = IdentityEvidence()
    evidence.id(0, True, 3)
    evidence.id(0, False, 4)
    evidence.id(0, False, 5)
    identities = roll((0, "a", "b"), evidence=evidence)
    assert identities.by_id(3) == "a"
    assert [(w.name, w.id) for w in identities.workers] == [("a", 3), ("b", None)]


def test_an_id_of_two_names_is_nobodys() -> None:
    told = (LoggedWorker(name="a", id=0), LoggedWorker(name="b", id=0, group=1))
    identities = roll(told=told)
    assert identities.by_id(0) == "worker:0"
    assert [(w.name, w.group) for w in identities.workers] == [("a", 0), ("b", 1)]


def test_jobs_are_numbered_numbers_first() -> None:
    ways: tuple[tuple[LogJob, str, str], ...] = (
        ("x", "a", "b"),
        (7, "a", "b"),
        (-1, "a", "b"),
        (7, "c", "b"),
    )
    told = (LoggedWorker(name="a", id=1, job=7), LoggedWorker(name="z", id=1, job="x"))
    identities = roll(*ways, told=told)
    assert identities.jobs == (2, 1, 0, 1)
    assert (identities.by_id(1, 1), identities.by_id(1, 2), identities.by_id(1, 0)) == ("a", "z", "worker:1")
    assert [w.name for w in identities.workers if w.job == 2] == ["z", "a", "b"]


def test_labels_that_stand_for_names() -> None:
    identities = roll((0, "worker:3", "10.0.0.1:99"))
    (worker,) = identities.workers
    assert (worker.name, worker.id) == (None, 3)
    assert identities.servers == ("10.0.0.1:99",)


def test_nothing() -> None:
    assert roll().workers == ()
    assert roll().by_id(0) == "worker:0"
