"""A dynamic group that others have started, as its store tells it: where it is, who its members are.

In: host and port of a store that the user names. Out: a store client with the group's prefix, and where its
members are. Reads only. May assume nothing about what the store says.

Mirrors the prefixes of `init_rpc` of torch/distributed/rpc/__init__.py.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Mapping

from msgspec import Struct

from rpcinspect.errors import ReplayError
from rpcinspect.replay.peers.loop import Tap
from rpcinspect.replay.peers.loopback import Address, any_host, parse_address
from rpcinspect.replay.peers.membership import IS_STATIC, STATIC, read_members
from rpcinspect.replay.peers.store_client import StoreClient

MAX_GROUPS = 64
"""Calls of init_rpc in one process that are looked for."""
UV = "uv://"
SCHEME = "tcp://"


class StoreAddress(Struct, frozen=True):
    """Where a group's store listens: the `init_method` of its workers."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> StoreAddress | None:
        """`tcp://host:port`; None: it is none."""
        host, colon, port = text.removeprefix(SCHEME).rpartition(":")
        if not text.startswith(SCHEME) or not colon or not port.isascii() or not port.isdigit():
            return None
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        fits = host and not set(host) & set("/[]@ ") and 0 < int(port[:6]) < 1 << 16
        return cls(host, int(port)) if fits else None

    def __str__(self) -> str:
        return SCHEME + str(Address(self.host, self.port))

    def connect(self, *, tap: Tap | None = None) -> StoreClient:
        """A client with the prefix of the group that was started last. Raises `ReplayError`."""
        store = StoreClient(self.host, self.port, tap=tap)
        try:
            store.prefix = _prefix(store)
        except BaseException:
            store.close()
            raise
        return store


def _prefix(store: StoreClient) -> str:
    """Of the last dynamic group that has members. Raises `ReplayError` where there is none."""
    static = False
    for number in reversed(range(MAX_GROUPS)):
        store.prefix = f"/rpc_prefix_{number}/"
        if not store.check(IS_STATIC):
            continue
        if store.get(IS_STATIC) != b"false":
            static = True
        elif read_members(store):
            return store.prefix
    if static:
        raise ReplayError(STATIC)
    raise ReplayError("no group of torch.distributed.rpc has its workers in this store")


def addresses_of(store: StoreClient, names: Collection[str]) -> dict[str, Address]:
    """Where members listen; without those that leave just now. Raises `ReplayError` for those that can't be
    reached over TCP.
    """
    found = {}
    for name in names:
        key = f"addrs/{name}"
        url = store.get(key).decode("utf-8", "replace") if store.check(key) else ""
        if not url:
            continue
        if not url.startswith(UV):
            scheme = url.partition(":")[0]
            raise ReplayError(f"{name} is reached over {scheme[:20]!a} only, not over TCP (transport uv)")
        found[name] = parse_address(url, any_host)
    return found


def own_host(members: Mapping[str, Address]) -> str:
    """The address of this machine at which all members can reach it: the one that it uses towards them."""
    towards = {name: _towards(address) for name, address in members.items()}
    hosts = sorted(set(towards.values()))
    others = [host for host in hosts if not ipaddress.ip_address(host).is_loopback]
    if len(others) > 1:
        ways = ", ".join(f"{host} for {name}" for name, host in sorted(towards.items()))
        raise ReplayError(f"no address of this machine is the same for all members: {ways}")
    return (others or hosts)[0]


def _towards(address: Address) -> str:
    """The own address of a connection there; nothing is sent."""
    with socket.socket(address.family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((address.host, address.port))
        except OSError as error:
            raise ReplayError(f"no way leads to {address}: {error.strerror}") from error
        return str(sock.getsockname()[0])
