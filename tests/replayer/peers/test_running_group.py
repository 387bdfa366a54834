"""What a store tells of the group in it: real stores, with what workers would have set."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.handshake import MEMBER_TERMS
from rpcinspect.replayer.peers.loop import Loop
from rpcinspect.replayer.peers.loopback import Address
from rpcinspect.replayer.peers.membership import IS_STATIC, MEMBERS, PREFIX, TOKEN, Membership, read_members
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.running_group import (
    HeldSignals,
    StoreAddress,
    addresses_of,
    own_host,
    remove_dead,
)
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.live_group import LiveGroup
from tests.replayer.live_calls import run


@pytest.fixture
def terminated() -> Iterator[list[int]]:
    """A handler for SIGTERM, as a command has one."""
    came: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = signal.signal(signal.SIGTERM, handler)
    yield came
    signal.signal(signal.SIGTERM, before)


def test_a_signal_waits_for_the_next_check(terminated: list[int]) -> None:
    with HeldSignals() as held:
        held.check()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert terminated == []
        held.check(1.5)
        assert terminated == [signal.SIGTERM]
        held.check()
    assert terminated == [signal.SIGTERM]
    signal.raise_signal(signal.SIGTERM)
    assert terminated == [signal.SIGTERM] * 2


def test_the_key_of_interruption() -> None:
    with HeldSignals() as held:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            held.check()


def test_nothing_takes_effect_while_it_is_quiet() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), HeldSignals() as held:  # noqa: PT012
        with held.quiet():
            signal.raise_signal(signal.SIGINT)
            held.check()
            done.append("quiet")
        done.append("after")
    assert done == ["quiet", "after"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_errors_do_not_hide_a_signal(terminated: list[int]) -> None:
    with pytest.raises(ValueError, match="something else"), HeldSignals():  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        raise ValueError("something else")
    assert terminated == [signal.SIGTERM]
    with pytest.raises(SystemExit), HeldSignals():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        raise SystemExit(1)  # it ends already


def test_signals_that_end_the_process_at_once_are_not_held() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with HeldSignals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_have_none_to_hold() -> None:
    seen = []

    def work() -> None:
        with HeldSignals() as held, held.quiet():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://10.0.0.1:29500", "10.0.0.1", 29500),
        ("tcp://head.cluster:1", "head.cluster", 1),
        ("tcp://[2001:db8::1]:65535", "2001:db8::1", 65535),
    ],
)
def test_addresses_of_stores(text: str, host: str, port: int) -> None:
    found = StoreAddress.parse(text)
    assert found == StoreAddress(host, port)
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "tcp://", "10.0.0.1:1", "env://", "file:///x", "tcp://:1", "tcp://h", "tcp://h:", "tcp://h:0"),
        *("tcp://h:65536", "tcp://h:1/x", "tcp://a b:1", "tcp://u@h:1", "tcp://h:٤", "tcp://[::1:5"),
    ],
)
def test_what_is_no_address(text: str) -> None:
    assert StoreAddress.parse(text) is None


@pytest.fixture
def raw(group: LiveGroup) -> Iterator[StoreClient]:
    with StoreClient("127.0.0.1", group.port) as client:
        yield client


def in_group(raw: StoreClient, number: int, static: bytes, members: bytes) -> None:
    raw.set(f"/rpc_prefix_{number}/{IS_STATIC}", static)
    raw.set(f"/rpc_prefix_{number}/{MEMBERS}", members)


@pytest.mark.parametrize(
    ("groups", "prefix"),
    [
        ([(0, b"false", b"a-0,")], "/rpc_prefix_0/"),
        ([(0, b"false", b"a-0,"), (3, b"false", b"a-0,b-1,")], "/rpc_prefix_3/"),
        ([(1, b"false", b"a-0,"), (2, b"false", b"")], "/rpc_prefix_1/"),
        ([(0, b"true", b""), (1, b"false", b"a-0,")], "/rpc_prefix_1/"),
    ],
)
def test_the_last_group_with_members(
    group: LiveGroup, raw: StoreClient, groups: list[tuple[int, bytes, bytes]], prefix: str
) -> None:
    for one in groups:
        in_group(raw, *one)
    with StoreAddress("127.0.0.1", group.port).connect() as store:
        assert store.prefix == prefix


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ([], "no torch.distributed.rpc group has its workers in this store"),
        ([(0, b"false", b"")], "no torch.distributed.rpc group has its workers in this store"),
        ([(0, b"true", b"a-0,")], "the group is static"),
    ],
)
def test_groups_that_nobody_can_join(
    group: LiveGroup, raw: StoreClient, groups: list[tuple[int, bytes, bytes]], reason: str
) -> None:
    for one in groups:
        in_group(raw, *one)
    with pytest.raises(ReplayError, match=reason):
        StoreAddress("127.0.0.1", group.port).connect()


def test_a_torch_worker_is_found(group: LiveGroup) -> None:
    group.start("worker1", 1)
    with StoreAddress("127.0.0.1", group.port).connect() as store:
        found = addresses_of(store, ["worker1"])
        assert found["worker1"].host == "127.0.0.1"
        assert own_host(found) == "127.0.0.1"
        store.set("addrs/hidden", b"shm://x7f:1a")
        with pytest.raises(ReplayError, match="hidden is reached over 'shm' only, not over TCP"):
            addresses_of(store, ["worker1", "hidden"])
        store.set("addrs/wild", b"uv://0.0.0.0:4")
        with pytest.raises(ReplayError, match="not the address of a machine"):
            addresses_of(store, ["wild"])


def test_the_own_address_towards_members() -> None:
    assert own_host({"a": Address("127.0.0.1", 1), "b": Address("127.0.0.1", 2)}) == "127.0.0.1"


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
    with pytest.raises(ReplayError, match="worker7 is not a member of the group, whose members are worker1"):
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
    monkeypatch.setattr("rpcinspect.replayer.peers.running_group.TOKEN_S", 0.2)
    group.start("worker1", 1)
    store.append(MEMBERS, b"ghost-5,")
    store.set(TOKEN, b"Token_for_worker1_leave")
    with pytest.raises(ReplayError, match="token is held: 'Token_for_worker1_leave'"):
        remove_dead(address, ["ghost"])
    assert store.get(TOKEN) == b"Token_for_worker1_leave"
    assert "ghost" in read_members(store)
