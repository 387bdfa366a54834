"""Sessions in a group that others have started, while other things go on in it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rpcinspect.equality.rules import Rules
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.peers.loop import Loop
from rpcinspect.replayer.peers.membership import IS_STATIC, MEMBERS, PREFIX, TOKEN, read_members
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.running_group import StoreAddress, remove_dead
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.model import PlannedSession, Step
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.planning.sessions import RoleAssignment
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.replayer.playing.attach import JoinOptions, check
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.outcome import ReplayOutcome
from rpcinspect.replayer.playing.receiving import Receiver
from rpcinspect.replayer.playing.report import report
from rpcinspect.replayer.replayer import replay
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.rpc.command import PythonRRefFetchCall
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.run import RunModel
from tests.replayer.live_calls import python_call
from tests.replayer.scripted import read_ones
from tests.replayer.talks import Workers
from tests.replayer.test_replayer import not_alike
from tests.truth import CAPTURES

CHAIN = CAPTURES / "basic_chain.pcap"


@pytest.fixture
def store(group: LiveGroup) -> Iterator[StoreClient]:
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as client:
        yield client


def outcome_of(
    group: LiveGroup,
    path: Path = CHAIN,
    *,
    progress: Callable[[int, int], None] = lambda done, steps: None,
    begins: Callable[[], None] = lambda: None,
) -> ReplayOutcome:
    options = ReplayOptions(join=JoinOptions(store=StoreAddress("127.0.0.1", group.port)))
    gate = ExecutionPolicy((), Sources(None, [CAPTURES]))
    with RunModel.open([str(path)]) as opened:
        made = plan(opened, PlanOptions(joins=True), gate)
        begins()
        return replay(opened, made, options, progress=progress)


def joined(group: LiveGroup, path: Path = CHAIN) -> None:
    """A replay in which everything is as captured."""
    outcome = outcome_of(group, path)
    failures = [session.failure for run in outcome.runs for session in run if session.failure is not None]
    if failures:
        raise ReplayError("; ".join(failures))
    assert not_alike(outcome, ("identical",)) == []


def test_workers_come_and_go_meanwhile(group: LiveGroup, store: StoreClient) -> None:
    """They ask all members, us too, while they hold the group's token: who waits for it must answer them."""
    group.start("worker1", 1)
    group.start("other0", 2)
    over = threading.Event()
    went = []

    def come_and_go() -> None:
        for n in range(4):
            guest = group.start(f"guest{n}", 10 + n)
            if not guest.leave(30.0):
                went.append(guest.child.output.tail())
        over.set()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    replays = 0
    while not over.is_set() or not replays:
        joined(group)
        replays += 1
    thread.join()
    assert went == []
    assert read_members(store) == {"worker1": 1, "other0": 2}
    assert store.get(TOKEN) == b""
    assert group.workers["worker1"].leave()
    assert group.workers["other0"].leave()


def test_two_replays_at_once(group: LiveGroup, store: StoreClient) -> None:
    """The second finds the captured name taken, and takes another."""
    group.start("worker1", 1)
    done: list[int] = []

    def work() -> None:
        for n in range(3):
            joined(group)
            done.append(n)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 0, 1, 1, 2, 2]
    assert read_members(store) == {"worker1": 1}
    assert not store.check("names/32761")
    assert store.check("names/32762")
    assert group.workers["worker1"].leave()


def test_a_member_that_is_dead(group: LiveGroup, store: StoreClient) -> None:
    worker = group.start("worker1", 1)
    group.start("other0", 2)
    worker.child.end()
    began = time.monotonic()
    with pytest.raises(ReplayError, match="Connection refused"):  # every member must be told
        joined(group)
    assert time.monotonic() - began < 60.0
    assert "worker0" not in read_members(store)
    assert store.get(TOKEN) == b""


def test_an_id_of_somebody_who_is_not_there(group: LiveGroup, store: StoreClient) -> None:
    """Untranslated it could be that of another member."""
    workers = Workers(3)
    workers.call(0, 1, 0, 10, PythonRRefFetchCall(rref_id=GloballyUniqueId(2, 5), from_worker_id=1))
    (call,) = workers.calls()
    step = Step(
        message=call.index, type=call.type, role="w0", to="w1", sender="w0", action="send", answer=call.answer
    )
    cast = RoleAssignment(0, ("w0",), ("w1", "w2"), "")
    inputs = SessionInputs(
        planned=PlannedSession(number=0, cast=cast, steps=(step,), arrivals=(), overlaps=()),
        calls={call.index: call},
        read=read_ones,
        rules=Rules(),
        worker_ids={"w0": 0, "w1": 1, "w2": 2},
        ids_in_group={"w0": 0, "w1": 1, "w2": 2},
    )
    store.set(IS_STATIC, b"false")
    store.set(MEMBERS, b"w1-4,other-2,")
    options = JoinOptions(store=StoreAddress("127.0.0.1", group.port))
    with pytest.raises(ReplayError, match=f"#{call.index} names w2, who is not a member of the group"):
        check([inputs], options)
    store.set(MEMBERS, b"w1-4,w2-2,")
    check([inputs], options)


def test_a_target_that_is_not_there(group: LiveGroup, store: StoreClient) -> None:
    group.start("worker1", 1)
    with pytest.raises(ReplayError, match="worker2 is not a member"):
        joined(group, CAPTURES / "rref_relay.pcap.gz")
    assert not store.check("names/32767")


# --- what goes wrong ----------------------------------------------------------------------------------------


def test_an_error_of_ours(group: LiveGroup, store: StoreClient, monkeypatch: pytest.MonkeyPatch) -> None:
    group.start("worker1", 1)

    def broken(*_: object) -> bool:
        raise RuntimeError("a mistake in the program")

    with monkeypatch.context() as patch:
        patch.setattr(Receiver, "_take_answer", broken)
        with pytest.raises(RuntimeError, match="a mistake in the program"):
            joined(group)
    assert read_members(store) == {"worker1": 1}
    assert store.get(TOKEN) == b""
    joined(group)
    assert group.workers["worker1"].leave()


def test_a_worker_that_is_killed_in_the_middle(group: LiveGroup, store: StoreClient) -> None:
    worker = group.start("worker1", 1)
    group.start("other", 2)

    def progress(done: int, _: int) -> None:
        if done == 2:
            worker.child.end()

    outcome = outcome_of(group, progress=progress)
    assert report(outcome).verdict == "failed"
    assert read_members(store) == {"worker1": 1, "other": 2}
    assert store.get(TOKEN) == b""
    assert remove_dead(StoreAddress("127.0.0.1", group.port), ["worker1"]).removed == ("worker1",)
    assert group.workers["other"].leave()


def test_an_interruption_while_another_has_the_token(group: LiveGroup, store: StoreClient) -> None:
    group.start("worker1", 1)
    store.set(TOKEN, b"Token_for_somebody_join")
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    began = time.monotonic()
    outcome = outcome_of(group, begins=timer.start)
    timer.join()
    assert outcome.interrupted
    assert time.monotonic() - began < 9.0  # the wait for the token is 10 s
    assert store.get(TOKEN) == b"Token_for_somebody_join"
    assert read_members(store) == {"worker1": 1}


def test_a_store_that_ends_in_the_middle(group: LiveGroup, store: StoreClient) -> None:
    """Nobody can leave such a group; what can be done is done, and it ends."""
    group.start("worker1", 1)
    address = store.get("addrs/worker1").decode()

    def progress(done: int, _: int) -> None:
        if done == 2:
            group._processes[0].end()

    outcome = outcome_of(group, progress=progress)
    (run,) = outcome.runs
    assert "the group could not be left properly" in str(run[0].failure)
    assert "rpcinspect leave tcp://" in str(run[0].failure)
    assert [step.result for step in run[0].steps if step.result] == ["identical"] * 8
    known = ("torch.distributed.rpc.api", "get_worker_info", "worker0")
    with Loop() as loop:
        peer = Peer(loop, "stranger", 9)
        peer.addresses["worker1"] = address
        answer = peer.call("worker1", python_call(*known), timeout_s=10.0)
    assert b"RemoteException" in answer.message.payload  # it was told
