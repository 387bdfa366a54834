"""Who is who: each source of names alone, and what happens where they contradict each other."""

from __future__ import annotations

import time

import pytest

from rpcinspect.session.model import Worker
from rpcinspect.session.names import call_roll
from rpcinspect.session.witness import Witness
from rpcinspect.wire.records import Pipe
from rpcinspect.wire.store import StoreEntry
from tests.session.records import entry, pipe

TWO = (
    entry("names/0", "worker0"),
    entry("names/1", "worker1"),
    entry("addrs/worker0", "uv://10.0.0.1:4000"),
    entry("addrs/worker1", "uv://10.0.0.2:5000"),
)


def labels(*pipes: Pipe, entries: tuple[StoreEntry, ...] = (), witness: Witness | None = None) -> list[str]:
    roster = call_roll(pipes, entries, witness or Witness())
    return [name for ends in zip(roster.clients, roster.servers, strict=True) for name in ends]


def worker(name: str | None, id: int | None, *addresses: str, group: int = 0) -> Worker:
    return Worker(name=name, id=id, group=group, addresses=addresses)


def test_nothing_known() -> None:
    roster = call_roll([pipe()], [], Witness())
    assert (roster.clients, roster.servers) == (("10.0.0.1:1000",), ("10.0.0.2:5000",))
    assert roster.workers == (worker(None, None, "10.0.0.2:5000"),)
    assert roster.by_id(3) == "worker:3"
    assert call_roll([], [], Witness()).workers == ()


def test_the_store_names_everybody() -> None:
    roster = call_roll([pipe(name="worker0")], TWO, Witness())
    assert (roster.clients, roster.servers) == (("worker0",), ("worker1",))
    assert roster.workers == (worker("worker0", 0, "10.0.0.1:4000"), worker("worker1", 1, "10.0.0.2:5000"))
    assert roster.by_id(1) == "worker1"


def test_workers_that_never_spoke_are_named_too() -> None:
    roster = call_roll([], TWO, Witness())
    assert [w.name for w in roster.workers] == ["worker0", "worker1"]


def test_an_ipv6_listener() -> None:
    entries = (entry("addrs/w", "uv://[FD00::2]:5000"),)
    assert labels(pipe(client="[fd00::1]:1", server="[fd00::2]:5000"), entries=entries) == [
        "[fd00::1]:1",
        "w",
    ]


def test_a_listener_of_the_shm_transport_has_no_address() -> None:
    roster = call_roll([], [entry("names/0", "w"), entry("addrs/w", "shm://1a543")], Witness())
    assert roster.workers == (Worker(name="w", id=0, group=0, addresses=(), elsewhere=("shm://1a543",)),)


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
    witness = Witness()
    witness.name(1, False, "late")
    witness.id(0, False, 7)
    pipes = pipe(name="a"), pipe(1, "10.0.0.3:1", name="b")
    roster = call_roll(pipes, [], witness)
    assert roster.servers == ("late", "late")
    assert worker("late", 7, "10.0.0.2:5000") in roster.workers


def test_ids_alone_give_a_weaker_label() -> None:
    witness = Witness()
    witness.id(0, True, 4)
    witness.id(0, False, 5)
    roster = call_roll([pipe()], [], witness)
    assert (roster.clients, roster.servers) == (("worker:4",), ("worker:5",))
    assert roster.workers == (worker(None, 4), worker(None, 5, "10.0.0.2:5000"))


def test_an_id_has_the_name_that_another_pipe_tells() -> None:
    witness = Witness()
    witness.id(0, True, 4)
    witness.id(1, False, 4)
    pipes = pipe(name="four"), pipe(1, "10.0.0.9:1", "10.0.0.1:4000")
    roster = call_roll(pipes, [], witness)
    assert roster.servers[1] == "four"
    assert roster.by_id(4) == "four"


# --- contradictions ---


def test_two_names_of_one_listener() -> None:
    witness = Witness()
    witness.name(0, False, "a")
    witness.name(1, False, "b")
    pipes = pipe(), pipe(1, "10.0.0.3:1")
    assert call_roll(pipes, [], witness).servers == ("10.0.0.2:5000",) * 2
    witness.id(0, False, 3)
    assert call_roll(pipes, [], witness).servers == ("worker:3",) * 2
    witness.id(1, False, 4)
    assert call_roll(pipes, [], witness).servers == ("10.0.0.2:5000",) * 2


def test_two_workers_that_were_published_at_one_address() -> None:
    entries = (*TWO, entry("addrs/other", "uv://10.0.0.2:5000", group=1))
    assert labels(pipe(name="worker0"), entries=entries)[1] == "10.0.0.2:5000"


def test_what_the_store_says_outweighs_what_messages_say() -> None:
    witness = Witness()
    witness.name(0, False, "liar")
    assert labels(pipe(), entries=TWO, witness=witness)[1] == "worker1"


def test_two_names_of_one_id() -> None:
    witness = Witness()
    for number in (0, 1):
        witness.id(number, True, 4)
    pipes = pipe(name="a"), pipe(1, "10.0.0.3:1", name="b")
    roster = call_roll(pipes, [], witness)
    assert roster.clients == ("a", "b")
    assert roster.by_id(4) == "worker:4"
    assert {w.name: w.id for w in roster.workers if w.name} == {"a": None, "b": None}


def test_groups_have_ids_of_their_own() -> None:
    """init_rpc again in the same processes: the same ids for other names."""
    entries = (*TWO, entry("names/0", "worker1", group=1), entry("names/1", "worker0", group=1))
    entries += (entry("addrs/worker0", "uv://10.0.0.1:4001", group=1),)
    roster = call_roll([], entries, Witness())
    assert {(w.group, w.name, w.id) for w in roster.workers} == {
        (0, "worker0", 0),
        (0, "worker1", 1),
        (1, "worker0", 1),
    }
    assert roster.by_id(0) == "worker:0"


def test_the_members_of_a_dynamic_group() -> None:
    roster = call_roll([], [entry("names/_ALL_WORKER_INFOS", "a-0,b-1,")], Witness())
    assert (roster.by_id(0), roster.by_id(1)) == ("a", "b")


@pytest.mark.parametrize("name", ["worker:3", "worker:²", "10.0.0.7:80", "[::1]:²", "a" * 4000, "\udcff"])
def test_any_context_name(name: str) -> None:
    roster = call_roll([pipe(name=name)], [], Witness())
    assert roster.clients == (name,)
    assert len(roster.workers) in (1, 2)


def test_an_empty_context_name_is_no_name() -> None:
    roster = call_roll([pipe(name="")], [], Witness())
    assert roster.clients == ("10.0.0.1:1000",)


def test_facts_count_only_what_is_new() -> None:
    witness = Witness()
    for _ in range(3):
        witness.id(0, True, 1)
        witness.name(0, True, "a")
        witness.name(0, False, "a")
    assert witness.facts == 3


def test_many_pipes_and_entries_take_linear_time() -> None:
    pipes = [
        pipe(n, f"10.1.{n >> 8}.{n & 255}:7", f"10.2.{n >> 8}.{n & 255}:8", f"w{n}") for n in range(8000)
    ]
    entries = [entry(f"names/{n}", f"w{n}") for n in range(8000)]
    start = time.process_time()
    call_roll(pipes, entries, Witness())
    assert time.process_time() - start < 9
