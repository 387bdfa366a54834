"""Members that died are taken out of their group; those that live are not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replay.peers.handshake import MEMBER_TERMS
from rpcinspect.replay.peers.loop import Loop
from rpcinspect.replay.peers.membership import MEMBERS, PREFIX, TOKEN, Membership, read_members
from rpcinspect.replay.peers.peer import Peer
from rpcinspect.replay.peers.repair import remove_dead
from rpcinspect.replay.peers.running_group import StoreAddress
from rpcinspect.replay.peers.store_client import StoreClient
from rpcinspect.replay.workers.live_group import LiveGroup
from tests.replay.live_calls import run

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def store(group: LiveGroup) -> Iterator[StoreClient]:
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as client:
        yield client


@pytest.fixture
def address(group: LiveGroup) -> StoreAddress:
    return StoreAddress("127.0.0.1", group.port)


def test_a_member_that_ended_without_a_word(
    group: LiveGroup, store: StoreClient, address: StoreAddress
) -> None:
    group.start("worker1", 1)
    group.start("worker2", 2)
    with Loop() as loop:
        Membership(store, [Peer(loop, "ghost", 0, terms=MEMBER_TERMS)], fresh=True).join()
    assert read_members(store) == {"worker1": 1, "worker2": 2, "ghost": 32767}
    done = remove_dead(address, ["ghost"])
    assert (done.removed, done.token, done.untold) == (("ghost",), None, ())
    assert read_members(store) == {"worker1": 1, "worker2": 2}
    assert not store.check("addrs/ghost")
    assert store.check("names/32767")  # nobody may have this id again
    assert store.get(TOKEN) == b""
    assert run(group, "worker1", "torch.distributed.rpc.api", "rpc_sync", "worker2", len, ("four",)) == 4
    group.start("worker3", 3)  # would fail to join with a dead member
    for name in ("worker3", "worker2", "worker1"):
        began = time.monotonic()
        assert group.workers[name].leave()
        assert time.monotonic() - began < 20.0


def test_a_torch_worker_that_was_killed(group: LiveGroup, store: StoreClient, address: StoreAddress) -> None:
    group.start("worker1", 1)
    group.start("worker2", 2).child.end()
    done = remove_dead(address, ["worker2"])
    assert done.removed == ("worker2",)
    assert read_members(store) == {"worker1": 1}
    assert group.workers["worker1"].leave()


def test_a_token_that_died_with_its_holder(
    group: LiveGroup, store: StoreClient, address: StoreAddress
) -> None:
    """Killed while it joined, before it was in the list; a worker that waits for the token goes on."""
    group.start("worker1", 1)
    store.set(TOKEN, b"Token_for_ghost_join")
    done = remove_dead(address, ["ghost"])
    assert (done.removed, done.token) == ((), "Token_for_ghost_join")
    assert store.get(TOKEN) == b""
    assert store.get("Token_for_ghost_join") == b"Done"
    group.start("worker2", 2)


def test_those_who_live_stay(group: LiveGroup, store: StoreClient, address: StoreAddress) -> None:
    group.start("worker1", 1)
    group.start("worker2", 2)
    with pytest.raises(ReplayError, match="worker2 still answers, at 127"):
        remove_dead(address, ["worker2"])
    with pytest.raises(ReplayError, match="worker7 is no member of the group, whose members are worker1"):
        remove_dead(address, ["worker7"])
    with Loop() as loop:  # it listens, and says nothing: nobody looks after this loop
        silent = Peer(loop, "silent", 5)
        store.append(MEMBERS, b"silent-5,")
        store.set("addrs/silent", silent.address.encode())
        with pytest.raises(ReplayError, match=r"something listens at .* as silent did"):
            remove_dead(address, ["silent"])
    assert read_members(store) == {"worker1": 1, "worker2": 2, "silent": 5}
    assert remove_dead(address, ["silent"]).removed == ("silent",)
    assert run(group, "worker1", "torch.distributed.rpc.api", "rpc_sync", "worker2", len, ("four",)) == 4


def test_a_port_that_somebody_else_has_now(
    group: LiveGroup, store: StoreClient, address: StoreAddress
) -> None:
    group.start("worker1", 1)
    store.append(MEMBERS, b"ghost-5,")
    store.set("addrs/ghost", store.get("addrs/worker1"))
    assert remove_dead(address, ["ghost"]).removed == ("ghost",)
    assert read_members(store) == {"worker1": 1}


def test_others_that_are_dead_too_are_told_of(
    group: LiveGroup, store: StoreClient, address: StoreAddress
) -> None:
    group.start("worker1", 1)
    group.start("worker2", 2).child.end()
    store.append(MEMBERS, b"ghost-5,")
    done = remove_dead(address, ["ghost"])
    assert (done.removed, done.untold) == (("ghost",), ("worker2",))


def test_a_token_that_another_holds(
    group: LiveGroup, store: StoreClient, address: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpcinspect.replay.peers.repair.TOKEN_S", 0.2)
    group.start("worker1", 1)
    store.append(MEMBERS, b"ghost-5,")
    store.set(TOKEN, b"Token_for_worker1_leave")
    with pytest.raises(ReplayError, match="token is held: 'Token_for_worker1_leave'"):
        remove_dead(address, ["ghost"])
    assert store.get(TOKEN) == b"Token_for_worker1_leave"
    assert "ghost" in read_members(store)
