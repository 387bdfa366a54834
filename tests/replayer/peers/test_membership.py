"""Peers in a group of live workers: joining, being called, a captured backward pass, leaving."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.loop import Loop, PipeLost, RequestArrived, ResponseArrived
from rpcinspect.replayer.peers.membership import MEMBERS, PREFIX, TOKEN, Membership, read_members
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage
from tests.replayer.captured import autograd_message_id, captured, remapped
from tests.replayer.live_calls import SECONDS, device_infos_call, members, python_call, value_of

RET = int(MessageType.PYTHON_RET)
BACKWARD = int(MessageType.BACKWARD_AUTOGRAD_REQ)
BACKWARD_RESP = int(MessageType.BACKWARD_AUTOGRAD_RESP)
CLEANUP_RESP = int(MessageType.CLEANUP_AUTOGRAD_CONTEXT_RESP)


@pytest.fixture
def store(group: LiveGroup) -> Iterator[StoreClient]:
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX, timeout_s=SECONDS) as client:
        yield client


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


def test_a_peer_joins_is_known_and_leaves(group: LiveGroup, store: StoreClient, loop: Loop) -> None:
    group.start("worker1", 1)
    peer = Peer(loop, "worker0", 0)
    with members(store, [peer]):
        assert read_members(store) == {"worker1": 1, "worker0": 0}
        infos = peer.call(
            "worker1",
            python_call("torch.distributed.rpc.api", "get_worker_info", "worker0"),
            timeout_s=SECONDS,
        )
        assert b"worker0" in infos.message.payload
        answer = peer.call("worker1", python_call("math", "hypot", 3.0, 4.0), timeout_s=SECONDS)
        assert value_of(answer) == 5.0
        assert store.get(TOKEN) == b""
    assert read_members(store) == {"worker1": 1}
    assert store.check("names/0")  # as torch leaves it: members keep a pipe to the process of an id
    assert not store.check("addrs/worker0")
    assert store.get(TOKEN) == b""
    failed = peer.call(
        "worker1", python_call("torch.distributed.rpc.api", "get_worker_info", "worker0"), timeout_s=SECONDS
    )
    assert b"RemoteException" in failed.message.payload
    assert group.workers["worker1"].leave()


def test_a_peer_that_never_joined_can_ask_but_not_be_asked(
    group: LiveGroup, store: StoreClient, loop: Loop
) -> None:
    group.start("worker1", 1)
    peer = Peer(loop, "stranger", 9)
    peer.addresses["worker1"] = store.get("addrs/worker1").decode()
    assert value_of(peer.call("worker1", python_call("math", "hypot", 3.0, 4.0), timeout_s=SECONDS)) == 5.0


def test_a_live_worker_asks_a_played_one(group: LiveGroup, store: StoreClient, loop: Loop) -> None:
    group.start("worker1", 1)
    peers = [Peer(loop, "worker0", 0), Peer(loop, "worker2", 2)]
    with members(store, peers) as membership:
        message_id = peers[0].send("worker1", ask("worker2", "anything"), timeout_s=SECONDS)
        asked: RequestArrived | None = None
        answer: ResponseArrived | None = None
        end = time.monotonic() + SECONDS
        while answer is None and time.monotonic() < end:
            for event in loop.wait(0.5):
                if membership.handle(event):
                    continue
                if isinstance(event, RequestArrived):
                    assert (event.peer, event.sender) == ("worker2", "worker1")
                    asked = event
                    peers[1].answer(event, RpcMessage(RET, 0, pickle.dumps("from the capture"), NO_TENSORS))
                else:
                    assert isinstance(event, ResponseArrived)
                    answer = event
        assert asked is not None
        assert answer is not None
        assert answer.message.id == message_id
        assert value_of(answer) == "from the capture"


def ask(to: str, what: str) -> RpcMessage:
    """Lets a live worker make `rpc_sync(to, len, (what,))`."""
    return python_call("torch.distributed.rpc.api", "rpc_sync", to, len, (what,))


def test_two_live_workers_call_each_other(group: LiveGroup, store: StoreClient, loop: Loop) -> None:
    group.start("worker1", 1)
    group.start("worker2", 2)
    peer = Peer(loop, "worker0", 0)
    with members(store, [peer]):
        for asked, other in (("worker1", "worker2"), ("worker2", "worker1")):
            answer = peer.call(asked, ask(other, "four"), timeout_s=SECONDS)
            assert value_of(answer) == 4


def test_a_worker_that_joins_later_is_answered(group: LiveGroup, store: StoreClient, loop: Loop) -> None:
    peer = Peer(loop, "worker0", 0)
    group.start("worker1", 1)
    with members(store, [peer]) as membership:
        peer.send("worker1", ask("worker1", "four"), timeout_s=SECONDS)
        # While a worker joins it asks all members for their devices: somebody must be there to answer.
        started = threading.Thread(target=group.start, args=("worker2", 2))
        started.start()
        handled = 0
        end = time.monotonic() + SECONDS
        while (started.is_alive() or handled < 2) and time.monotonic() < end:
            handled += sum([membership.handle(event) for event in loop.wait(0.05)])
        started.join()
        assert handled == 2  # _get_device_infos, _update_group_membership
        assert "worker2" in peer.addresses
        answer = peer.call("worker2", python_call("math", "hypot", 3.0, 4.0), timeout_s=SECONDS)
        assert value_of(answer) == 5.0


@pytest.mark.parametrize(
    ("name", "worker_id", "reason"),
    [("worker1", 5, "has a member 'worker1' already"), ("worker5", 1, "id 1 of 'worker5' is that of")],
)
def test_names_and_ids_that_are_taken(
    group: LiveGroup, store: StoreClient, loop: Loop, name: str, worker_id: int, reason: str
) -> None:
    group.start("worker1", 1)
    with pytest.raises(ReplayError, match=reason):
        Membership(store, [Peer(loop, name, worker_id)]).join()
    assert read_members(store) == {"worker1": 1}
    assert store.get(TOKEN) == b""
    assert group.workers["worker1"].leave()


def test_a_static_group_is_left_alone(group: LiveGroup, store: StoreClient, loop: Loop) -> None:
    store.set("rpcIsStaticGroup", b"true")
    with pytest.raises(ReplayError, match="static"):
        Membership(store, [Peer(loop, "worker0", 0)]).join()
    assert not store.check(MEMBERS)
    assert store.get(TOKEN) == b""


def test_a_token_that_is_never_given_back(group: LiveGroup, store: StoreClient, loop: Loop) -> None:
    store.set(TOKEN, b"Token_for_ghost_join")
    start = time.monotonic()
    with pytest.raises(ReplayError, match="token is held: 'Token_for_ghost_join'"):
        Membership(store, [Peer(loop, "worker0", 0)], timeout_s=0.3).join()
    assert time.monotonic() - start < 3
    assert store.get(TOKEN) == b"Token_for_ghost_join"


def test_a_member_that_does_not_answer(group: LiveGroup, store: StoreClient, loop: Loop) -> None:
    silent = Peer(loop, "worker1", 1)  # a peer nobody answers for
    store.set(MEMBERS, b"worker1-1,")
    store.set("addrs/worker1", silent.address.encode())
    with pytest.raises(ReplayError, match=r"worker1 did not answer PYTHON_CALL within 0\.3 s"):
        Membership(store, [Peer(loop, "worker0", 0)], timeout_s=0.3).join()
    assert read_members(store) == {"worker1": 1}
    assert store.get(TOKEN) == b""


def test_a_worker_killed_mid_call(group: LiveGroup, store: StoreClient, loop: Loop) -> None:
    worker = group.start("worker1", 1)
    peer = Peer(loop, "worker0", 0)
    with members(store, [peer], timeout_s=2.0):
        message_id = peer.send("worker1", python_call("time", "sleep", 60), timeout_s=SECONDS)
        peer.call("worker1", device_infos_call(), timeout_s=SECONDS)
        os.kill(worker.child.pid, signal.SIGKILL)
        lost = loop.wait_until(lambda e: isinstance(e, PipeLost) and not e.inbound, SECONDS)
        assert isinstance(lost, PipeLost)
        assert lost.unanswered == (message_id,)
    ended = worker.child.wait(SECONDS)
    assert ended is not None
    assert ended.signal == "SIGKILL"
    assert "worker0" not in read_members(store)


# --- a captured context -----------------------------------------------------------------------------------


def test_a_captured_backward_pass_gives_the_same_gradients(
    group: LiveGroup, store: StoreClient, loop: Loop, repo: Path
) -> None:
    worker = group.start("worker1", 1)
    with captured(str(repo / "captures" / "basic_chain.pcap")) as messages:
        ours = [m for m in messages if m.client == "worker0"]
        answers = {m.message.id: m for m in ours if not m.from_client}
        wanted = [m for m in messages if m.client == "worker1" and m.message.type == BACKWARD]
        requests = [m for m in ours if m.from_client]
        assert len(wanted) == 2
        peer = Peer(loop, "worker0", 0)
        with members(store, [peer]):
            live_ids: dict[int, int] = {}
            for request in [m for m in requests if m.message.type == MessageType.FORWARD_AUTOGRAD_REQ]:
                live = peer.call("worker1", request.message, request.tensors, timeout_s=SECONDS)
                then = answers[request.message.id]
                assert live.message.type == then.message.type
                assert live.message.payload == then.message.payload
                assert live.message.tensor_table == then.message.tensor_table
                assert live.tensors == then.tensors
                live_ids[autograd_message_id(then.message)] = autograd_message_id(live.message)
            sent = [
                peer.send("worker1", remapped(m, live_ids), m.tensors, timeout_s=SECONDS)
                for m in requests
                if m.message.type == BACKWARD
            ]
            came: list[RequestArrived] = []
            answered: list[int] = []
            end = time.monotonic() + SECONDS
            while (len(came) < 2 or len(answered) < 2) and time.monotonic() < end:
                for event in loop.wait(0.5):
                    if isinstance(event, RequestArrived):
                        came.append(event)
                        peer.answer(event, RpcMessage(BACKWARD_RESP, 0, b"", NO_TENSORS))
                    else:
                        assert isinstance(event, ResponseArrived)
                        assert event.message.type == BACKWARD_RESP
                        answered.append(event.message.id)
            assert sorted(answered) == sent
            found = sorted([(e.message.payload, e.message.tensor_table, e.tensors) for e in came])
            assert found == sorted([(m.message.payload, m.message.tensor_table, m.tensors) for m in wanted])
            assert worker.gradients(0) == ()  # its functions have no parameters
            (cleanup,) = [m for m in requests if m.message.type == MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ]
            done = peer.call("worker1", cleanup.message, timeout_s=SECONDS)
            assert done.message.type == CLEANUP_RESP
            (event,) = loop.wait(SECONDS)  # the worker tells everybody who took part, us too
            assert isinstance(event, RequestArrived)
            assert event.message.payload == cleanup.message.payload
            peer.answer(event, RpcMessage(CLEANUP_RESP, 0, b"", NO_TENSORS))
            with pytest.raises(ReplayError, match="Could not find autograd context with id: 0"):
                worker.gradients(0)
        assert worker.leave()
