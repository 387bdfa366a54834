"""Sessions in a group that others have started, while other things go on in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.equality.rules import Rules
from rpcinspect.errors import ReplayError
from rpcinspect.opened import OpenSession
from rpcinspect.replay.gate import Gate
from rpcinspect.replay.joined import JoinOptions, check
from rpcinspect.replay.live_group import LiveGroup
from rpcinspect.replay.material import Material
from rpcinspect.replay.membership import IS_STATIC, MEMBERS, PREFIX, TOKEN, read_members
from rpcinspect.replay.model import PlannedSession, Step
from rpcinspect.replay.plan import PlanOptions, plan
from rpcinspect.replay.replayer import ReplayOptions, replay
from rpcinspect.replay.report import Report, report
from rpcinspect.replay.running_group import StoreAddress
from rpcinspect.replay.sessions import Cast
from rpcinspect.replay.sources import Sources
from rpcinspect.replay.store_client import StoreClient
from rpcinspect.rpc.command import PythonRRefFetchCall
from rpcinspect.rpc.types import GloballyUniqueId
from tests.replay.scripted import read_ones
from tests.replay.talks import Workers
from tests.replay.test_replayer import not_alike
from tests.truth import CAPTURES

CHAIN = CAPTURES / "basic_chain.pcap"


@pytest.fixture
def store(group: LiveGroup) -> Iterator[StoreClient]:
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as client:
        yield client


def joined(group: LiveGroup, path: Path = CHAIN, **more: str) -> Report:
    options = ReplayOptions(join=JoinOptions(store=StoreAddress("127.0.0.1", group.port), renames=more))
    with OpenSession([str(path)]) as opened:
        made = plan(
            opened.session, opened.messages(), PlanOptions(joins=True), Gate((), Sources(None, [CAPTURES]))
        )
        outcome = replay(opened, made, options)
    failures = [session.failure for run in outcome.runs for session in run if session.failure is not None]
    if failures:
        raise ReplayError("; ".join(failures))
    made_of = report(outcome)
    if made_of.verdict != "identical":
        raise ReplayError("\n".join(map(str, not_alike(outcome, ("identical",)))))
    return made_of


def test_workers_come_and_go_meanwhile(group: LiveGroup, store: StoreClient) -> None:
    """They ask all members, us too, while they hold the group's token: who waits for it must answer them."""
    group.start("worker1", 1)
    group.start("other0", 2)
    over = threading.Event()
    went = []

    def come_and_go() -> None:
        for n in range(4):
            group.start(f"guest{n}", 10 + n)
            went.append(group.workers[f"guest{n}"].leave(30.0))
        over.set()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    replays = 0
    while not over.is_set() or not replays:
        made = joined(group)
        assert made.verdict == "identical"
        replays += 1
    thread.join()
    assert went == [True] * 4
    assert read_members(store) == {"worker1": 1, "other0": 2}
    assert store.get(TOKEN) == b""
    assert group.workers["worker1"].leave()
    assert group.workers["other0"].leave()


def test_two_replays_at_once(group: LiveGroup, store: StoreClient) -> None:
    """The second finds the captured name taken, and takes another."""
    group.start("worker1", 1)
    verdicts: list[str] = []

    def work() -> None:
        for _ in range(3):
            verdicts.append(joined(group).verdict)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == ["identical"] * 6
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
    cast = Cast(0, ("w0",), ("w1", "w2"), "")
    material = Material(
        planned=PlannedSession(number=0, cast=cast, steps=(step,), arrivals=(), overlaps=()),
        calls={call.index: call},
        read=read_ones,
        rules=Rules(),
        worker_ids={"w0": 0, "w1": 1, "w2": 2},
    )
    store.set(IS_STATIC, b"false")
    store.set(MEMBERS, b"w1-4,other-2,")
    options = JoinOptions(store=StoreAddress("127.0.0.1", group.port))
    with pytest.raises(ReplayError, match=f"#{call.index} speaks of w2, who is no member of the group"):
        check([material], options)
    store.set(MEMBERS, b"w1-4,w2-2,")
    check([material], options)


def test_a_target_that_is_not_there(group: LiveGroup, store: StoreClient) -> None:
    group.start("worker1", 1)
    with pytest.raises(ReplayError, match="worker2 is no member"):
        joined(group, CAPTURES / "rref_relay.pcap.gz")
    assert not store.check("names/32767")
