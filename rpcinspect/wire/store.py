"""The TCPStore conversation of one connection -> keys with their values -> who is called what.

In: the ordered bytes of both directions, each with a time. Out: a `StoreEntry` for every key whose value the bytes
tell, and in the end a `WorkerDirectory`. May assume that a connection was recognised by `looks_like_store`, so
that both directions start at their first byte; the two may be fed in any interleaving, one may be missing.

Mirrors `torch/csrc/distributed/c10d/TCPStore.cpp`, `TCPStoreBackend.hpp` and `TCPStoreLibUvBackend.cpp`;
the keys are those of `tensorpipe_agent.cpp` and `torch/distributed/rpc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from rpcinspect.limits import DEFAULT_LIMITS, Limits


class StoreGeneration(Enum):
    """Releases of PyTorch that number the operations alike."""

    V1_8 = "1.8"
    V1_9 = "1.9"
    """1.9 to 2.1."""
    V2_2 = "2.2"
    """2.2 and later: a magic number comes first."""


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """At this time this key had this value."""

    key: str
    """With all its prefixes, e.g. `/rpc_prefix_0/names/0`. UTF-8, other bytes as `surrogateescape`."""
    value: bytes
    """Cut to `KEPT_VALUE_BYTES` unless `is_directory_key(key)`; what was added, for an `append`."""
    size: int
    """Bytes of the whole value."""
    operation: str
    """`set`, `multi_set`, `append` (client to server), `get`, `multi_get`, `compare_set`, `add` (replies)."""
    time_ns: int
    """Capture time of the piece of stream that completed it."""


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """Why one direction was not followed to its end."""

    reason: str
    from_client: bool
    offset: int
    """Bytes from the start of that direction."""


@dataclass(frozen=True, slots=True)
class WorkerDirectory:
    """Who is called what. Keys begin with the group: N of `/rpc_prefix_N/`, the N-th init_rpc of the processes."""

    names: Mapping[tuple[int, int], str]
    """(group, worker id) -> name."""
    addresses: Mapping[tuple[int, str], str]
    """(group, name) -> address as published, e.g. `uv://127.0.0.1:33589`, `uv://[::1]:4`, `shm://...`."""
    members: Mapping[int, tuple[tuple[str, int], ...]]
    """group -> every (name, id) that was ever listed as a member; only of groups without a fixed world size."""


KEPT_VALUE_BYTES = 64


def looks_like_store(first_client_bytes: bytes) -> StoreGeneration | None:
    """Which generation a connection speaks, by its first bytes from the client; None: not a store, or too few."""
    raise NotImplementedError


def may_become_store(first_client_bytes: bytes) -> bool:
    """Whether these bytes are too few to tell: more of them could still make `looks_like_store` say yes."""
    raise NotImplementedError


def is_directory_key(key: str) -> bool:
    """Whether `worker_directory` reads this key; entries of other keys need not be kept."""
    raise NotImplementedError


class StoreConversation:
    """Both directions of one connection to the store."""

    def __init__(self, generation: StoreGeneration, limits: Limits = DEFAULT_LIMITS) -> None:
        raise NotImplementedError

    def feed_client(self, data: bytes, time_ns: int) -> list[StoreEntry]:
        """More bytes from client to server; returns what became known, from either direction."""
        raise NotImplementedError

    def feed_server(self, data: bytes, time_ns: int) -> list[StoreEntry]:
        """More bytes from server to client; returns what became known."""
        raise NotImplementedError

    def gap_client(self, length: int) -> None:
        """Bytes of the client are missing: its direction is not followed any further."""
        raise NotImplementedError

    def gap_server(self, length: int) -> None:
        """Bytes of the server are missing: its direction is not followed any further."""
        raise NotImplementedError

    def finish(self) -> list[StoreProblem]:
        """No more bytes will come; says what could not be read, at most once per direction."""
        raise NotImplementedError


def worker_directory(entries: Iterable[StoreEntry]) -> WorkerDirectory:
    """What the entries of all connections to one store say about its workers; later entries win."""
    raise NotImplementedError
