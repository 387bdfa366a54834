"""Which RRefs of a capture that began late could have a stand-in, and from what."""

from __future__ import annotations

import pytest

from rpcinspect.replayer.planning.facts import read_facts
from rpcinspect.replayer.planning.model import StandIn
from rpcinspect.replayer.planning.plan import PlanOptions
from rpcinspect.replayer.planning.provisions import stand_ins
from rpcinspect.rpc.command import (
    Command,
    PythonCall,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RRefAck,
    RRefUserDelete,
    ScriptRRefFetchCall,
    ScriptRRefFetchRet,
)
from rpcinspect.rpc.types import GloballyUniqueId
from tests.replayer.planning.test_sessions import remote
from tests.replayer.talks import Workers, udf

RREF, FORK = GloballyUniqueId(0, 3), GloballyUniqueId(0, 4)
FETCH = PythonRRefFetchCall(1, RREF)
PLAIN = PythonRRefFetchRet((), b"\x80\x04N.")
OTHERS = PythonRRefFetchRet((), b"\x80\x04capp\nThing\n)\x81.")
FAILED = PythonRRefFetchRet(
    (), b"\x80\x04ctorch.distributed.rpc.internal\nRemoteException\nX\x01\x00\x00\x00xN\x86\x81."
)
DELETE = RRefUserDelete(RREF, FORK)


def found(workers: Workers, *live: str) -> dict[tuple[int, int], StandIn]:
    calls = workers.calls()
    return stand_ins(calls, read_facts(workers.run())[0], live or ("w1",))


def test_the_first_answer_that_shows_the_value() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, FETCH, OTHERS)
    workers.call(0, 1, 30, 40, FETCH, PLAIN)
    workers.call(0, 1, 50, 60, FETCH, PLAIN)
    workers.call(0, 1, 70, 80, DELETE, RRefAck())
    ((rref, one),) = found(workers).items()
    assert rref == (0, 3)
    assert one == StandIn(rref=rref, owner="w1", message=3, request=2, forks=((0, 4),), changed=())
    assert one.text == "stand-in for RRef 0:3, from #3"


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (FETCH, OTHERS),
        (FETCH, FAILED),
        (FETCH, None),
        (ScriptRRefFetchCall(1, RREF), ScriptRRefFetchRet((7,))),
    ],
    ids=["a class of the user", "an exception", "never answered", "not a tensor"],
)
def test_what_can_not_be_given_back(request_: Command, answer: Command | None) -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, None if answer is None else 20, request_, answer)
    assert found(workers) == {}


def test_only_of_live_owners_and_older_ones() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, FETCH, PLAIN)
    assert found(workers, "w0") == {}
    made = Workers(2)
    made.call(0, 1, 5, 8, *remote(3))
    made.call(0, 1, 10, 20, FETCH, PLAIN)
    assert found(made) == {}


def test_what_may_have_changed_it_is_told() -> None:
    optimizer = PythonCall(udf("torch.distributed.optim.optimizer._local_optimizer_step"), False)
    workers = Workers(3)
    workers.call(2, 1, 5, 8, "app.other")
    workers.call(2, 1, 10, 18, optimizer)
    workers.call(0, 1, 30, 40, FETCH, PLAIN)
    workers.call(2, 1, 50, 60, optimizer)
    (one,) = found(workers).values()
    assert one.changed == (2,)
    assert one.text == "stand-in for RRef 0:3, from #5, which may have been changed by #2 before"


def test_a_plan_names_them_only_if_asked() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, FETCH, PLAIN)
    workers.call(0, 1, 30, 40, DELETE, RRefAck())
    without, with_ = (workers.plan(PlanOptions(trust=True, stand_ins=given)) for given in (False, True))
    (session,) = without.sessions
    assert [(step.action, step.code) for step in session.steps] == [("skip", "older-rref")] * 2
    assert "--stand-ins makes one from #1" in (session.steps[0].text or "")
    assert session.stand_ins == ()
    (session,) = with_.sessions
    assert [step.action for step in session.steps] == ["send", "send"]
    texts = [step.text for step in session.steps]
    assert texts == [
        "stand-in for RRef 0:3, from #1: the same value by construction",
        "stand-in for RRef 0:3, from #1",
    ]
    assert [one.message for one in session.stand_ins] == [1]
