"""The worker directory in a store: which keys hold names and addresses of workers, and who is called what.

In: the `StoreEntry`s of connections. Out: a `WorkerDirectory`. The keys are those of `tensorpipe_agent.cpp`
and `torch/distributed/rpc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from rpcinspect.late_pattern import late


class StoreEntry(Struct, frozen=True):
    """At this time this key had this value."""

    key: str
    """With all its prefixes, e.g. `/rpc_prefix_0/names/0`. UTF-8, other bytes as `surrogateescape`."""
    value: bytes
    """Cut to `KEPT_VALUE_BYTES` unless it has a `directory_key`; for an `append`, what was appended."""
    size: int
    """Bytes of the whole value."""
    operation: str
    """`set`, `multi_set`, `append` (from the client), `get`, `multi_get`, `compare_set`, `add` (replies), and
    the request `wait`, which has no value, for keys under which ranks meet."""
    time_ns: int
    """Capture time of the segment that holds its last byte, whenever that was read."""
    server: str = ""
    """Where the store listens, `ip:port`; set by whoever knows the connection."""
    since_ns: int | None = None
    """When the connection was opened; None where that was not captured."""
    pause_ns: int = 0
    """The longest time before this in which its client said nothing."""


class WorkerDirectory(Struct, frozen=True):
    """Who is called what, by group: N of `/rpc_prefix_N/` (the N-th init_rpc of a process), 0 without it."""

    names: Mapping[tuple[int, int], str]
    """(group, worker id) -> name: from `names/<id>`, without it from the list of members."""
    addresses: Mapping[tuple[int, str], str]
    """(group, name) -> address as published, e.g. `uv://127.0.0.1:33589`, `uv://[::1]:4`, `shm://...`."""
    members: Mapping[int, tuple[tuple[str, int], ...]]
    """group -> every (name, id) ever listed as a member; only for groups without a fixed world size."""


class DirectoryKey(Struct, frozen=True):
    """What a key of the directory is about."""

    root: str
    """All before `/rpc_prefix_N/`, such as `/worker/attempt_1`: several jobs may share a store by it."""
    group: int
    kind: Literal["name", "address", "members"]
    of: int | str = ""
    """The id whose name it is, or the name whose address."""


_NAME_KEY = late(r"(?:^|/)names/(\d{1,9})\Z", re.ASCII)

_ADDRESS_KEY = late(r"(?:^|/)addrs/(.+)\Z", re.DOTALL)

_MEMBERS_KEY = late(r"(?:^|/)names/_ALL_WORKER_INFOS\Z")

_GROUP = late(r"/rpc_prefix_(\d{1,9})/", re.ASCII)

_MEMBER = late(r"([^,]+)-(\d{1,9}),", re.ASCII)


@lru_cache(maxsize=4096)
def directory_key(key: str) -> DirectoryKey | None:
    """Parses a key of the worker directory; None for other keys, whose entries are not kept."""
    prefix = _GROUP.search(key)
    root = key[: prefix.start()] if prefix else ""
    group = int(prefix[1]) if prefix else 0
    if found := _NAME_KEY.search(key):
        return DirectoryKey(root, group, "name", int(found[1]))
    if found := _ADDRESS_KEY.search(key):
        return DirectoryKey(root, group, "address", found[1])
    return DirectoryKey(root, group, "members") if _MEMBERS_KEY.search(key) else None


def members_of(value: bytes) -> tuple[tuple[str, int], ...]:
    """The (name, id) of each member in a list of members."""
    text = value.decode("utf-8", "surrogateescape")
    return tuple([(found[1], int(found[2])) for found in _MEMBER.finditer(text)])


def worker_directory(entries: Iterable[StoreEntry]) -> WorkerDirectory:
    """Returns the workers that entries of all connections to one store name; later entries win."""
    names: dict[tuple[int, int], str] = {}
    addresses: dict[tuple[int, str], str] = {}
    members: dict[int, dict[tuple[str, int], None]] = {}
    for entry in entries:
        key = directory_key(entry.key)
        if key is None or not entry.value:  # the reply to a GET of a key that isn't there
            continue
        text = entry.value.decode("utf-8", "surrogateescape")
        if isinstance(key.of, int):
            names[key.group, key.of] = text
        elif key.kind == "address":
            addresses[key.group, key.of] = text
        else:
            members.setdefault(key.group, {}).update(dict.fromkeys(members_of(entry.value)))
    # Who joins a dynamic group asks for this list but not for the names of those who came before.
    for group, listed in members.items():
        for name, worker_id in listed:
            names.setdefault((group, worker_id), name)
    return WorkerDirectory(names, addresses, {group: tuple(listed) for group, listed in members.items()})
