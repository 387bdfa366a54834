"""Calls of plain Python functions in live workers, and what came of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rpcinspect.replayer.peers.loop import Loop, ResponseArrived
from rpcinspect.replayer.peers.membership import PREFIX, Membership
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage

SECONDS = 10.0


@contextmanager
def members(store: StoreClient, peers: Sequence[Peer], timeout_s: float = 10.0) -> Iterator[Membership]:
    """Peers that are members of a group inside of a `with` statement."""
    membership = Membership(store, peers, timeout_s=timeout_s)
    membership.join()
    try:
        yield membership
    finally:
        membership.leave()


def python_call(module: str, name: str, *args: object) -> RpcMessage:
    """A call of a function, as its PythonUDF; the function isn't looked up in this process."""
    head = b"\x80\x02ctorch.distributed.rpc.internal\nPythonUDF\n(c%s\n%s\n"
    # Below the call are plain values; their pickle without PROTO and STOP stands for itself.
    values = pickle.dumps(args, protocol=2)[2:-1]
    udf = head % (module.encode(), name.encode()) + values + b"}t\x81."
    return RpcMessage(int(MessageType.PYTHON_CALL), 0, b"\0" + udf, NO_TENSORS)


def device_infos_call() -> RpcMessage:
    """Asks a worker for its devices; the cheapest way to see that its agent answers."""
    return python_call("torch.distributed.rpc.backend_registry", "_get_device_infos")


def value_of(answer: ResponseArrived) -> object:
    """What a live worker of these tests returned, or its failure: they are ours, so they may be loaded."""
    assert answer.message.type == MessageType.PYTHON_RET
    return pickle.loads(answer.message.payload)


def run(group: LiveGroup, worker: str, module: str, name: str, *args: object) -> object:
    """The value of `module.name(*args)` in a live worker, asked by somebody who never joined."""
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as store, Loop() as loop:
        peer = Peer(loop, "stranger", 99)
        peer.addresses[worker] = store.get(f"addrs/{worker}").decode()
        return value_of(peer.call(worker, python_call(module, name, *args), timeout_s=SECONDS))
