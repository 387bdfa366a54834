"""Stand-ins that live workers are given: torch takes them, and everything that uses them is as captured."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.peers.control_calls import cast_pickle
from rpcinspect.replayer.peers.loop import Loop, ResponseArrived
from rpcinspect.replayer.peers.membership import PREFIX, Membership
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.model import StandIn
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.report import Report, report
from rpcinspect.replayer.playing.rref_substitutes import OWN_IDS, give, opcodes_of_value
from rpcinspect.replayer.replayer import replay
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.replayer.workers.workers import Workers
from rpcinspect.rpc.command import PythonRRefFetchCall
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage
from rpcinspect.rpc.questions import FETCHES, rref_of
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel
from tests.cli.runner import rpcinspect
from tests.replayer.late_starts import late_start
from tests.truth import CAPTURES, workload

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_within_a_call(protocol: int) -> None:
    shared = ["x" * 300]
    value = {"a": shared, "b": (shared, 1 << 70, None), "c": b"\x00" * 70_000}
    data = cast_pickle(opcodes_of_value(pickle.dumps(value, protocol)))
    udf = pickle.loads(data)
    assert udf.func(*udf.args, **udf.kwargs) == value
    again = udf.func(*udf.args)
    assert again["a"] is again["b"][0]


def users(name: str) -> list[dict[str, Any]]:
    """The calls by the driver that hand on a handle, in their order."""
    calls = [call for call in workload(name).calls() if call.event["worker"] == "worker0"]
    return [call.request for call in calls if call.event["function"] == "rref_relay.use"]


def replayed(path: Path, workers: Workers, *, given: bool) -> Report:
    with RunModel.open([str(path)]) as opened:
        options, gate = PlanOptions(stand_ins=given), ExecutionPolicy((), Sources(None, [CAPTURES]))
        made = plan(opened, options, gate)
        return report(replay(opened, made, ReplayOptions(), workers=workers))


def test_a_python_object(tmp_path: Path, workers: Workers) -> None:
    """The capture begins with the first use of an RRef that the driver made and fetched before."""
    path = late_start(tmp_path, "rref_relay", users("rref_relay")[0]["index"])
    without, with_ = (replayed(path, workers, given=given) for given in (False, True))
    assert without.not_replayed["older-rref"] > 0
    assert set(with_.not_replayed) == {"control", "nested-in-answer"}
    assert (with_.verdict, with_.unexpected) == ("identical", 0)
    # of the 16 requests that worker0 sends in all, 2 are before: the remote call and the fetch
    assert (with_.responses.identical, with_.responses.expected) == (14, 14)


def test_a_tensor_of_torchscript(tmp_path: Path, workers: Workers) -> None:
    """It begins with the use of an operator's result; an RRef that nobody fetches any more stays unknown."""
    third = users("rref_relay")[2]["index"]
    with_ = replayed(late_start(tmp_path, "rref_relay", third), workers, given=True)
    assert (with_.verdict, with_.unexpected) == ("identical", 0)
    assert with_.not_replayed["older-rref"] == 1  # its deletion


def test_a_stand_in_with_another_value_is_found_out(tmp_path: Path, workers: Workers) -> None:
    """That of the driver's own RRef, which is full of nines, in the place of the operator's result."""
    path = late_start(tmp_path, "rref_relay", users("rref_relay")[2]["index"])
    with RunModel.open([str(path)]) as opened:
        made = plan(opened, PlanOptions(trust=True, stand_ins=True))
        calls = opened.exchanges.calls
        other = next(call for call in calls if rref_of(call.request) == (0, 8) and call.kind in FETCHES)
        (session,) = made.sessions
        wrong = replace(session.stand_ins[0], request=other.index, message=other.answer)
        made = replace(made, sessions=(replace(session, stand_ins=(wrong,)),))
        outcome = replay(opened, made, ReplayOptions(), workers=workers)
    assert report(outcome).verdict == "different"
    (bad,) = (one for one in outcome.runs[0][0].steps if one.result not in ("identical", None))
    assert (bad.step.action, bad.differences[0].path) == ("send", "tensors[0].elements[0]")


def test_an_id_that_a_live_worker_would_give_out_again(tmp_path: Path, group: LiveGroup) -> None:
    """An RRef that its owner made itself: the live one counts from 0, so the stand-in has another id."""
    path = late_start(tmp_path, "rref_relay", users("rref_relay")[0]["index"])
    with RunModel.open([str(path)]) as opened:
        made = plan(opened, PlanOptions(trust=True, stand_ins=True))
        inputs, stand_in = material_of(opened, made.sessions[0])
        group.start("worker1", 1)
        with (
            Loop() as loop,
            StoreClient("127.0.0.1", group.port, prefix=PREFIX) as store,
            Peer(loop, "worker0", 0) as peer,
        ):
            membership = Membership(store, [peer])
            membership.join()
            give(inputs, loop, {"worker0": peer}, membership.handle)
            live = GloballyUniqueId(1, OWN_IDS + 7)
            assert inputs.ids.translate("rref", GloballyUniqueId(1, 7)) == live
            fetch = to_payload(PythonRRefFetchCall(1, live))
            peer.send("worker1", RpcMessage(MessageType.PYTHON_RREF_FETCH_CALL, 0, fetch, NO_TENSORS))
            heard = (event for _ in range(600) for event in loop.wait(0.05))
            answer = next(event for event in heard if isinstance(event, ResponseArrived))
        assert answer.tensors == tuple(storages(inputs.calls[stand_in.request], opened))


def material_of(opened: RunModel, planned: Any) -> tuple[SessionInputs, StandIn]:
    """With the stand-in of an RRef that worker1 made itself, in the place of the captured one."""
    calls = opened.calls
    stand_in = replace(planned.stand_ins[0], rref=(1, 7), forks=((1, 8),))
    cast = replace(planned.cast, live=("worker1",))
    session = replace(planned, cast=cast, stand_ins=(stand_in,))
    ids = {"worker0": 0, "worker1": 1}
    return SessionInputs(
        planned=session, calls=calls, read=opened.read, rules=Rules(), worker_ids=ids, ids_in_group=ids
    ), stand_in


def storages(call: Exchange, opened: RunModel) -> list[bytes]:
    assert call.response is not None
    return [opened.read(one.extent) for one in call.response.tp.tensors if one.extent is not None]


def test_on_the_command_line(tmp_path: Path) -> None:
    path = late_start(tmp_path, "rref_relay", users("rref_relay")[0]["index"])
    ran = rpcinspect("replay", path, "--path", CAPTURES, "--stand-ins", "--require-all")
    assert ran.code == 0
    (line,) = (line for line in ran.out.splitlines() if "stand-in" in line)
    assert line.startswith("worker1 gets a stand-in for RRef 0:0, from #")
