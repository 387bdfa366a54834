"""The workers of a job → a conversation with a store that tells their names, ids and addresses.

In: the session's workers of one job. Out: a `Talk` in which a client sets the keys that workers set when a
group begins. One store for each job, since names and ids are unique in a job only.

Mirrors the client of `torch/csrc/distributed/c10d/TCPStore.cpp` and the keys of
`torch/csrc/distributed/rpc/tensorpipe_agent.cpp`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.export.pcap.flows import CLIENT, Ports, Talk
from rpcinspect.session.hosts import host_of
from rpcinspect.session.model import Worker
from rpcinspect.store.operations import OPENING_2_2, OPERATIONS, StoreGeneration, packed_string

NOWHERE = "127.0.0.1"
"""Host of the store of workers without any address on the network."""

GENERATION = StoreGeneration.V2_2
SET = next(code for code, operation in OPERATIONS[GENERATION].items() if operation.name == "set")


def store_talk(workers: Sequence[Worker], time_ns: int, ports: Ports) -> Talk | None:
    """The conversation of a job; None where it has no worker with a name."""
    entries = [*_members(workers), *(entry for worker in workers for entry in _entries(worker))]
    if not entries:
        return None
    addresses = [address for worker in workers for address in worker.addresses]
    host = host_of(addresses[0]) if addresses else NOWHERE
    server = ports.take(host)
    talk = Talk(ports.take(host), server, time_ns)
    talk.greet(CLIENT, OPENING_2_2)
    for key, value in entries:
        written = [packed_string(text.encode("utf-8", "surrogateescape")) for text in (key, value)]
        talk.greet(CLIENT, bytes((SET,)) + b"".join(written))
    return talk


def _members(workers: Sequence[Worker]) -> Iterator[tuple[str, str]]:
    """The list of members, where any worker has set its address more than once: elsewhere nobody comes
    back.
    """
    for group in sorted({worker.group for worker in workers if len(worker.addresses) > 1}):
        listed = [f"{w.name}-{w.id}," for w in workers if w.group == group and w.name and w.id is not None]
        if listed:
            yield f"/rpc_prefix_{group}/names/_ALL_WORKER_INFOS", "".join(listed)


def _entries(worker: Worker) -> Iterator[tuple[str, str]]:
    if worker.name is None:
        return
    prefix = f"/rpc_prefix_{worker.group}/"
    if worker.id is not None and worker.id >= 0:
        yield f"{prefix}names/{worker.id}", worker.name
    for address in worker.addresses:  # pipes are written as uv's, also those that were opened elsewhere
        yield f"{prefix}addrs/{worker.name}", f"uv://{address}"
    if not worker.addresses and worker.elsewhere:
        yield f"{prefix}addrs/{worker.name}", worker.elsewhere[0]
