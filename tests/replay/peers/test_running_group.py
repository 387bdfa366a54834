"""What a store tells of the group in it: real stores, with what workers would have set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replay.peers.loopback import Address
from rpcinspect.replay.peers.membership import IS_STATIC, MEMBERS
from rpcinspect.replay.peers.running_group import StoreAddress, addresses_of, own_host
from rpcinspect.replay.peers.store_client import StoreClient
from rpcinspect.replay.workers.live_group import LiveGroup


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
        ([], "no group of torch.distributed.rpc has its workers in this store"),
        ([(0, b"false", b"")], "no group of torch.distributed.rpc has its workers in this store"),
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
        with pytest.raises(ReplayError, match="no address of a machine"):
            addresses_of(store, ["wild"])


def test_the_own_address_towards_members() -> None:
    assert own_host({"a": Address("127.0.0.1", 1), "b": Address("127.0.0.1", 2)}) == "127.0.0.1"
