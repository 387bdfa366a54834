"""Who is who: each source of names alone, and what happens where they contradict each other."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from rpcinspect.session.identity import IdentityEvidence
from rpcinspect.session.model import Worker
from rpcinspect.session.workers import resolve_workers
from rpcinspect.store.directory import StoreEntry
from rpcinspect.tensorpipe.records import Pipe
from tests.session.records import entry, met, pipe

TWO = (
    entry("names/0", "worker0"),
    entry("names/1", "worker1"),
    entry("addrs/worker0", "uv://10.0.0.1:4000"),
    entry("addrs/worker1", "uv://10.0.0.2:5000"),
)


def labels(
    *pipes: Pipe, entries: tuple[StoreEntry, ...] = (), evidence: IdentityEvidence | None = None
) -> list[str]:
    identities = resolve_workers(pipes, entries, evidence or IdentityEvidence())
    return [name for ends in zip(identities.clients, identities.servers, strict=True) for name in ends]


def worker(name: str | None, id: int | None, *addresses: str, group: int = 0) -> Worker:
    return Worker(name=name, id=id, group=group, addresses=addresses)


def test_nothing_known() -> None:
    identities = resolve_workers([pipe()], [], IdentityEvidence())
    assert (identities.clients, identities.servers) == (("10.0.0.1:1000",), ("10.0.0.2:5000",))
    assert identities.workers == (worker(None, None, "10.0.0.2:5000"),)
    assert identities.by_id(3) == "worker:3"
    assert resolve_workers([], [], IdentityEvidence()).workers == ()


def test_the_store_names_everybody() -> None:
    identities = resolve_workers([pipe(name="worker0")], TWO, IdentityEvidence())
    assert (identities.clients, identities.servers) == (("worker0",), ("worker1",))
    assert identities.workers == (
        worker("worker0", 0, "10.0.0.1:4000"),
        worker("worker1", 1, "10.0.0.2:5000"),
    )
    assert identities.by_id(1) == "worker1"


def test_workers_that_never_spoke_are_named_too() -> None:
    identities = resolve_workers([], TWO, IdentityEvidence())
    assert [w.name for w in identities.workers] == ["worker0", "worker1"]


def test_an_ipv6_listener() -> None:
    entries = (entry("addrs/w", "uv://[FD00::2]:5000"),)
    assert labels(pipe(client="[fd00::1]:1", server="[fd00::2]:5000"), entries=entries) == [
        "[fd00::1]:1",
        "w",
    ]


def test_a_listener_of_the_shm_transport_has_no_address() -> None:
    identities = resolve_workers(
        [], [entry("names/0", "w"), entry("addrs/w", "shm://1a543")], IdentityEvidence()
    )
    assert identities.workers == (Worker(name="w", id=0, group=0, addresses=(), elsewhere=("shm://1a543",)),)


def test_the_context_name_names_the_client_only() -> None:
    assert labels(pipe(name="w0"), pipe(1, "10.0.0.3:1", name="w2")) == [
        "w0",
        "10.0.0.2:5000",
        "w2",
        "10.0.0.2:5000",
    ]


def test_a_pipe_to_oneself_has_one_name_at_both_ends() -> None:
    entries = (entry("names/0", "me"), entry("addrs/me", "uv://10.0.0.1:4000"))
    assert labels(pipe(client="10.0.0.1:999", server="10.0.0.1:4000", name="me"), entries=entries) == [
        "me",
        "me",
    ]


def test_all_pipes_to_one_listener_go_to_one_worker() -> None:
    evidence = IdentityEvidence()
    evidence.name(1, False, "late")
    evidence.id(0, False, 7)
    pipes = pipe(name="a"), pipe(1, "10.0.0.3:1", name="b")
    identities = resolve_workers(pipes, [], evidence)
    assert identities.servers == ("late", "late")
    assert worker("late", 7, "10.0.0.2:5000") in identities.workers


def test_ids_alone_give_a_weaker_label() -> None:
    evidence = IdentityEvidence()
    evidence.id(0, True, 4)
    evidence.id(0, False, 5)
    identities = resolve_workers([pipe()], [], evidence)
    assert (identities.clients, identities.servers) == (("worker:4",), ("worker:5",))
    assert identities.workers == (worker(None, 4), worker(None, 5, "10.0.0.2:5000"))


def test_an_id_has_the_name_that_another_pipe_tells() -> None:
    evidence = IdentityEvidence()
    evidence.id(0, True, 4)
    evidence.id(1, False, 4)
    pipes = pipe(name="four"), pipe(1, "10.0.0.9:1", "10.0.0.1:4000")
    identities = resolve_workers(pipes, [], evidence)
    assert identities.servers[1] == "four"
    assert identities.by_id(4) == "four"


# --- contradictions ---


def test_two_names_of_one_listener() -> None:
    evidence = IdentityEvidence()
    evidence.name(0, False, "a")
    evidence.name(1, False, "b")
    pipes = pipe(), pipe(1, "10.0.0.3:1")
    assert resolve_workers(pipes, [], evidence).servers == ("10.0.0.2:5000",) * 2
    evidence.id(0, False, 3)
    assert resolve_workers(pipes, [], evidence).servers == ("worker:3",) * 2
    evidence.id(1, False, 4)
    assert resolve_workers(pipes, [], evidence).servers == ("10.0.0.2:5000",) * 2


def test_two_workers_that_were_published_at_one_address() -> None:
    entries = (*TWO, entry("addrs/other", "uv://10.0.0.2:5000", group=1))
    assert labels(pipe(name="worker0"), entries=entries)[1] == "10.0.0.2:5000"


def test_what_the_store_says_outweighs_what_messages_say() -> None:
    evidence = IdentityEvidence()
    evidence.name(0, False, "liar")
    assert labels(pipe(), entries=TWO, evidence=evidence)[1] == "worker1"


def test_two_names_of_one_id() -> None:
    evidence = IdentityEvidence()
    for number in (0, 1):
        evidence.id(number, True, 4)
    pipes = pipe(name="a"), pipe(1, "10.0.0.3:1", name="b")
    identities = resolve_workers(pipes, [], evidence)
    assert identities.clients == ("a", "b")
    assert identities.by_id(4) == "worker:4"
    assert {w.name: w.id for w in identities.workers if w.name} == {"a": None, "b": None}


def test_groups_have_ids_of_their_own() -> None:
    """init_rpc again in the same processes: the same ids for other names."""
    entries = (*TWO, entry("names/0", "worker1", group=1), entry("names/1", "worker0", group=1))
    entries += (entry("addrs/worker0", "uv://10.0.0.1:4001", group=1),)
    identities = resolve_workers([], entries, IdentityEvidence())
    assert {(w.group, w.name, w.id) for w in identities.workers} == {
        (0, "worker0", 0),
        (0, "worker1", 1),
        (1, "worker0", 1),
    }
    assert identities.by_id(0) == "worker:0"


def test_the_members_of_a_dynamic_group() -> None:
    identities = resolve_workers([], [entry("names/_ALL_WORKER_INFOS", "a-0,b-1,")], IdentityEvidence())
    assert (identities.by_id(0), identities.by_id(1)) == ("a", "b")


@pytest.mark.parametrize("name", ["worker:3", "worker:²", "10.0.0.7:80", "[::1]:²", "a" * 4000, "\udcff"])
def test_any_context_name(name: str) -> None:
    identities = resolve_workers([pipe(name=name)], [], IdentityEvidence())
    assert identities.clients == (name,)
    assert len(identities.workers) in (1, 2)


def test_an_empty_context_name_is_no_name() -> None:
    identities = resolve_workers([pipe(name="")], [], IdentityEvidence())
    assert identities.clients == ("10.0.0.1:1000",)


# --- names hold for a time ---

A, B = "10.0.0.1:4000", "10.0.0.2:5000"


def test_each_job_has_its_own_names_of_an_address() -> None:
    pipes = (
        pipe(0, name="a", opened=5, ended=9),
        pipe(1, "10.0.0.2:7", A, "y", opened=25),
        pipe(2, "10.0.0.1:8", name="x", opened=26),
    )
    identities = resolve_workers(
        pipes, [*met(("a", A), ("b", B)), *met(("x", A), ("y", B), at=20)], IdentityEvidence()
    )
    assert (identities.clients, identities.servers) == (("a", "y", "x"), ("b", "x", "y"))
    assert identities.jobs == (0, 1, 1)
    assert [identities.by_id(1, job) for job in (0, 1)] == ["b", "y"]
    assert [(w.job, w.name, w.id, w.addresses) for w in identities.workers] == [
        (0, "a", 0, (A,)),
        (0, "b", 1, (B,)),
        (1, "x", 0, (A,)),
        (1, "y", 1, (B,)),
    ]


def test_a_job_without_a_store_has_no_name_of_another_one() -> None:
    """Neither by the address nor by the id."""
    evidence = IdentityEvidence()
    evidence.id(1, False, 1)
    pipes = (pipe(0, name="a", opened=5, ended=9), pipe(1, name="x", opened=25))
    identities = resolve_workers(pipes, met(("a", A), ("b", B)), evidence)
    assert (identities.clients, identities.servers) == (("a", "x"), ("b", "worker:1"))
    assert (identities.by_id(0, 0), identities.by_id(0, 1)) == ("a", "worker:0")


def test_what_was_said_of_a_listener_ends_with_it() -> None:
    evidence = IdentityEvidence()
    evidence.name(0, False, "b")
    pipes = (pipe(0, name="a", opened=5, ended=9), pipe(1, "10.0.0.1:9", name="x", opened=25))
    assert resolve_workers(pipes, [], evidence).servers == ("b", B)


def test_a_member_that_comes_back_is_one_worker_with_two_addresses() -> None:
    both, one = (entry("names/_ALL_WORKER_INFOS", listed) for listed in ("a-0,b-1,", "a-0,"))
    entries = [entry("names/0", "a"), both, entry("addrs/b", f"uv://{B}")]
    entries += [replace(one, time_ns=10), replace(both, time_ns=20)]
    entries += [entry("addrs/b", "uv://10.0.0.2:5001", at=21)]
    pipes = (
        pipe(0, name="a", opened=5, ended=9),
        pipe(1, "10.0.0.1:9", "10.0.0.2:5001", name="a", opened=25),
    )
    identities = resolve_workers(pipes, entries, IdentityEvidence())
    assert (identities.servers, identities.jobs) == (("b", "b"), (0, 0))
    assert [(w.name, w.id, w.addresses) for w in identities.workers if w.name == "b"] == [
        ("b", 1, (B, "10.0.0.2:5001"))
    ]


def test_many_pipes_and_entries_take_linear_time() -> None:
    pipes = [
        pipe(n, f"10.1.{n >> 8}.{n & 255}:7", f"10.2.{n >> 8}.{n & 255}:8", f"w{n}") for n in range(8000)
    ]
    entries = [entry(f"names/{n}", f"w{n}") for n in range(8000)]
    start = time.process_time()
    resolve_workers(pipes, entries, IdentityEvidence())
    assert time.process_time() - start < 9
