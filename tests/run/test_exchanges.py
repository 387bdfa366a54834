"""Exchanges: requests with their answers, ends and times."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.pickles.render import render
from rpcinspect.rpc.command import PythonResp
from rpcinspect.rpc.questions import failed
from rpcinspect.run.run import open_run
from tests.checks.runs import traced, workload_trace
from tests.decoded import decode
from tests.places import recorded
from tests.replayer.talks import NONE, Workers


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
    exchanges = workers.run().exchanges
    (call,) = exchanges.calls
    assert (call.answer, call.end_ns, call.response) == (None, None, None)
    (orphan,) = exchanges.orphans
    assert (orphan.index, orphan.source, orphan.destination) == (1, "w0", "w1")


def test_a_capture_says_the_same_as_decode(repo: Path) -> None:
    path = repo / "captures" / "basic_chain.pcap"
    shown = {m["index"]: m for m in decode(path).messages}
    with open_run(str(path)) as opened:
        calls = opened.exchanges.calls
    assert [c.index for c in calls] == [i for i, m in shown.items() if m["request"]]
    for call in calls:
        message = shown[call.index]
        told = (call.caller, call.callee, call.type, call.control, call.begin_ns, call.arrived_ns)
        keys = ("src", "dst", "type", "control", "time_ns", "end_time_ns")
        assert told == tuple(message[key] for key in keys)
        assert call.answer is not None
        assert shown[call.answer]["answers"] == call.index


def test_an_exchange_tells_what_decode_shows_of_its_messages() -> None:
    path = recorded("reports/job/custom.pcap")
    shown = decode(path).messages
    methods = 0
    with open_run(str(path)) as run:
        timings = {timing.call.index: timing for timing in run.latency.timings}
        for call in run.calls.values():
            body = shown[call.index]["body"]
            if "args" in body and body.get("kwargs") == {} and call.arguments is not None:
                args, kwargs = call.arguments
                assert [render(value) for value in args] == body["args"] or call.messages[0].tensors
                assert kwargs.pairs == []
            assert call.timing == timings[call.index]
            assert call.timing.total_ns == call.latency_ns
            assert [message.index for message in call.messages] == [
                one for one in (call.index, call.answer) if one is not None
            ]
            if call.name is not None and call.method is not None:
                methods += 1
                assert call.name.short.endswith(f".{call.method}")
                if call.cls is not None:
                    assert call.name.full == f"{call.cls}.{call.method}"
            assert (call.error is not None) == (call.response is not None and failed(call.response))
    assert methods > 0


def test_parents_are_those_of_the_causes_and_no_guess() -> None:
    doubts = certain = own = 0
    for name in ("names/three_jobs", "latency/backward_elsewhere"):
        run = traced(recorded(f"reports/{name}.pcap"))
        for call in run.exchanges.calls:
            its = tuple(parent.index for parent in call.parents)
            assert (its, call.parent_certain) == run.causes.of(call.index)
            doubts += not call.parent_certain
            certain += call.parent_certain and len(its) == 1
            own += call.parent_certain and not its
            assert all((call in parent.children) == call.parent_certain for parent in call.parents)
            assert all(child.parents == (call,) and child.parent_certain for child in call.children)
    assert doubts > 0
    assert certain > 0
    assert own > 0


def test_errors_and_results_of_answers() -> None:
    run = workload_trace("bwd_boom")
    failing = [call for call in run.exchanges.calls if call.error is not None]
    assert failing
    assert all(call.result is None and call.error.text for call in failing if call.error is not None)
    assert any(call.result is not None for call in run.exchanges.calls)


def test_a_message_knows_its_exchange() -> None:
    run = workload_trace("basic_chain")
    for call in run.exchanges.calls:
        assert [message.exchange for message in call.messages] == [call] * len(call.messages)
    assert repr(run.exchanges.calls[0]).startswith("Exchange(#0 ")


def test_calls_without_housekeeping_get_what_the_jobs_script_gives_them() -> None:
    """captures/reports/job/train.py: one.forward(x), x of [6, 8], five times."""
    run = traced(recorded("reports/job/plain.pcap"))
    calls = [call for call in run.calls.values() if not call.housekeeping]
    assert not [call.type for call in calls if call.type.startswith(("CLEANUP", "RREF_")) or call.control]
    forward = [call for call in calls if call.what == "Stage1.forward"]
    assert [(call.method, render(call.passed)) for call in forward] == [("forward", "((tensor#0,), {})")] * 5
    assert all(len(call.arguments[0]) == 4 for call in forward if call.arguments is not None)  # the proxy's
    for call in run.calls.values():
        assert call.messages[0].housekeeping == call.housekeeping
