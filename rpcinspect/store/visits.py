"""What processes do at a TCPStore while they begin with RPC.

In: the entries of one connection to a store, as they become known. Out: a `Visit` for each init_rpc that it
was for: who came, where it listens, whose addresses it read. Below `/rpc_prefix_N` init_rpc sets and reads:

    0/RANK        where Gloo listens, with which the processes first meet
    names/ID      the worker's name
    addrs/NAME    where its RPC agent listens
    shutdown/…    only once init_rpc has succeeded
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address

from msgspec import Struct, field

from rpcinspect.late_pattern import late
from rpcinspect.store.directory import StoreEntry, directory_key

MAX_READ = 4096
"""Addresses that are kept of one visit."""
SOCKADDR_BYTES = 136
"""Of an address of Gloo: `struct sockaddr_storage` and a number."""
_KEY = late(r"^(.*?)/rpc_prefix_(\d{1,9})/(?:0/(\d{1,9})$|(shutdown/))?", re.ASCII)


class Visit(Struct, kw_only=True):
    """A process at a store during one init_rpc."""

    client: str
    """`ip:port` from which it came."""
    server: str
    """The store's `ip:port`."""
    root: str
    """What stands before `/rpc_prefix_N`."""
    group: int
    begin_ns: int
    ended_ns: int | None = None
    """When its connection to the store ended; None while that was not captured."""
    whole: bool = True
    """Whether all that was said there could be read."""
    rank: int | None = None
    name: str | None = None
    address: str | None = None
    """Where its RPC agent listens, as published in the store: `uv://ip:port`."""
    meets_at: str | None = None
    """`ip:port` where its Gloo listens, as published in the store."""
    read: dict[str, str] = field(default_factory=dict)
    """`ip:port` that it read → whose that is: `rank 1` or a name."""
    awaited: dict[int, None] = field(default_factory=dict)
    """Ranks for whose address it waited, whether it came or not."""
    succeeded: bool = False
    """Whether the process did what only follows init_rpc."""

    @property
    def place(self) -> str | None:
        """Returns the address without its transport."""
        return None if self.address is None else self.address.rpartition("://")[2].lower()

    @property
    def who(self) -> str:
        """Returns the worker's name, else its rank, else the address of the client."""
        if self.name is not None:
            return self.name
        return self.client if self.rank is None else f"rank {self.rank}"


class Visits:
    """Collects the visits of one connection; `feed` every entry."""

    def __init__(self, client: str, server: str) -> None:
        self._client, self._server = client, server
        self._of: dict[tuple[str, int], Visit] = {}

    def feed(self, entry: StoreEntry) -> Visit | None:
        """Takes what became known; returns the visit that begins by it."""
        key = _KEY.match(entry.key)
        if key is None:
            return None
        place = key[1], int(key[2])
        visit, began = self._of.get(place), None
        if visit is None:
            visit = began = self._of[place] = Visit(
                client=self._client,
                server=self._server,
                root=place[0],
                group=place[1],
                begin_ns=entry.time_ns,
            )
        if key[3] is not None:
            self._meeting(visit, entry, int(key[3]))
        elif key[4] is not None:
            visit.succeeded = True
        else:
            self._agent(visit, entry)
        return began

    @staticmethod
    def _meeting(visit: Visit, entry: StoreEntry, rank: int) -> None:
        address = gloo_address(entry.value)
        if entry.operation == "wait":
            if len(visit.awaited) < MAX_READ:
                visit.awaited.setdefault(rank)
        elif entry.operation == "set":
            visit.rank, visit.meets_at = rank, address
        elif address is not None and len(visit.read) < MAX_READ:
            visit.read.setdefault(address, f"rank {rank}")

    @staticmethod
    def _agent(visit: Visit, entry: StoreEntry) -> None:
        key = directory_key(entry.key)
        if key is None or key.kind == "members":
            return
        value = entry.value.decode("utf-8", "surrogateescape")
        if isinstance(key.of, int):
            if entry.operation == "set":
                visit.rank, visit.name = key.of, value
        elif entry.operation == "set":
            visit.name, visit.address = key.of, value
        elif value and len(visit.read) < MAX_READ:
            visit.read.setdefault(value.rpartition("://")[2].lower(), key.of)


def gloo_address(value: bytes) -> str | None:
    """Returns the first address in a value that Gloo of any release stores; None where there is none.

    A host's name comes before it since 2.4 (each with its length), or it is alone.
    """
    at, size = 0, int.from_bytes(value[:8], "little")
    if size < len(value) and int.from_bytes(value[8 + size : 16 + size], "little") == SOCKADDR_BYTES:
        at = 16 + size
    family, port = value[at : at + 2], int.from_bytes(value[at + 2 : at + 4], "big")
    if family == b"\x02\x00" and len(value) >= at + 8:
        return f"{'.'.join(map(str, value[at + 4 : at + 8]))}:{port}"
    if family == b"\x0a\x00" and len(value) >= at + 24:
        return f"[{IPv6Address(value[at + 8 : at + 24])}]:{port}"
    return None
