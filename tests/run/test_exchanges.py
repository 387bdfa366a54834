"""Exchanges: requests with their answers, ends and times."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.rpc.command import PythonResp
from rpcinspect.run.exchanges import read_exchanges
from rpcinspect.run.run import open_run
from tests.decoded import decode
from tests.replay.talks import NONE, Workers


def test_a_request_and_its_answer_are_one_call() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, "app.f", context=(0, 7), grads=(1, 1))
    (call,) = workers.calls()
    assert (call.index, call.answer, call.caller, call.callee) == (0, 1, "w0", "w1")
    assert (call.begin_ns, call.arrived_ns, call.answered_ns, call.end_ns) == (10, 11, 19, 20)
    assert (call.context, call.wrapped, call.function, call.type) == (
        0,
        True,
        "app.f",
        "FORWARD_AUTOGRAD_REQ",
    )


def test_calls_without_an_answer_and_answers_without_a_call() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, None)
    workers.say(PythonResp(NONE), pipe=2, id=99, from_client=False, time_ns=30)
    exchanges = read_exchanges(*workers.heard())
    (call,) = exchanges.calls
    assert (call.answer, call.end_ns, call.response) == (None, None, None)
    (orphan,) = exchanges.orphans
    assert (orphan.index, orphan.source, orphan.destination) == (1, "w0", "w1")


def test_a_capture_says_the_same_as_decode(repo: Path) -> None:
    path = repo / "captures" / "basic_chain.pcap"
    shown = {m["index"]: m for m in decode(path).messages}
    with open_run(str(path)) as opened:
        calls = read_exchanges(opened.session, opened.messages).calls
    assert [c.index for c in calls] == [i for i, m in shown.items() if m["request"]]
    for call in calls:
        message = shown[call.index]
        told = (call.caller, call.callee, call.type, call.control, call.begin_ns, call.arrived_ns)
        keys = ("src", "dst", "type", "control", "time_ns", "end_time_ns")
        assert told == tuple(message[key] for key in keys)
        assert call.answer is not None
        assert shown[call.answer]["answers"] == call.index
