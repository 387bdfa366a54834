"""The recorded workloads, D01 to D11 and pairs: decode says what the workers printed, no more and no less."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.places import workloads
from tests.truth import (
    CAPTURES,
    CLOCK_NS,
    NO_TENSORS,
    REFUSED,
    Call,
    Workload,
    check_tensors,
    context_of,
    workload,
)

RECORDED = sorted(str(path.relative_to(CAPTURES)).partition(".pcap")[0] for path in workloads())
COSTS = [name for name in RECORDED if name.startswith("costs/")]
OF_THEIR_OWN = ["logs/killed", "redaction/vault", *COSTS]
"""Made for worker logs, for redaction and for findings of costs, and held to their truth there:
tests/checks/test_worker_logs.py, tests/cli/test_worker_logs.py, tests/export/redaction, and
test_startup.py, test_sequential_awaits.py and test_empty_results.py in tests/checks. They do not print all
that they do."""
ALL = [name for name in RECORDED if name not in OF_THEIR_OWN]
PAIRS = [name for name in ALL if name.startswith("pairs/")]
FAULTS = [name for name in ALL if name.startswith("faults/")]
"""Jobs in which calls stay without an answer and workers die: tests/checks holds them to their truth."""
INVISIBLE = "transport_matrix_default"
"""The workers talk through shared memory: their calls are in the truth and not in the capture."""
VISIBLE = [name for name in ALL if name != INVISIBLE and name not in {*REFUSED, *FAULTS}]

CONTEXTS = [
    "basic_chain",
    "bwd_boom",
    "ctx_crowd",
    "devmap_cpu",
    "param_detach",
    "profiled_legacy",
    "ps_race",
    "ps_race_lock",
    "rref_relay",
    "transport_matrix_uv_basic",
    "transport_matrix_uv_mpt",
    "transport_matrix_uv_only",
    *PAIRS,
]


def test_the_workloads_are_these() -> None:
    assert (len(ALL), len(PAIRS), len(FAULTS), len(COSTS), len(RECORDED)) == (48, 20, 9, 4, 54)
    assert set(CONTEXTS) < set(VISIBLE)


# --- every workload ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDED)
def test_nothing_is_wrong_with_the_capture(name: str) -> None:
    decoded = workload(name).decoded
    assert decoded.problems() == []
    assert decoded.summary["problems"] == 0
    codes = {finding["code"] for finding in decoded.of("finding")}
    assert not codes & {"capture-gap", "truncated-packets", "conflicting-overlap"}


@pytest.mark.parametrize("name", RECORDED)
def test_workers(name: str) -> None:
    run = workload(name)
    told = {(w["name"], w["id"], w["group"]) for w in run.decoded.of("worker")}
    assert told == {(w["name"], w["id"], w["group"]) for w in run.of("worker")}
    addresses = [address for w in run.decoded.of("worker") for address in w["addresses"]]
    assert len(addresses) == len(set(addresses)) == len(told)


@pytest.mark.parametrize("name", VISIBLE)
def test_counts_by_type(name: str) -> None:
    run = workload(name)
    shown = Counter(message["type"] for message in run.decoded.messages)
    assert run.decoded.summary["by_type"] == shown
    assert run.decoded.summary["messages"] == shown.total()
    expected = run.of("expect")
    assert bool(expected) != name.startswith("ps_race")  # how many calls are made there depends on the race
    for event in expected:
        assert shown == event["by_type"]


@pytest.mark.parametrize("name", VISIBLE)
def test_the_agents_own_calls(name: str) -> None:
    run = workload(name)
    own = [m for m in run.decoded.messages if m["control"]]
    shown = Counter((m["dst"], m["body"]["function"]) for m in own if m["request"])
    assert shown == Counter((event["worker"], event["function"]) for event in run.of("control"))
    answers = [m for m in own if not m["request"]]
    assert {m["answers"] for m in answers} == {m["index"] for m in own if m["request"]}
    assert len(answers) * 2 == len(own)


@pytest.mark.parametrize("name", VISIBLE)
def test_every_request_is_answered_once_by_its_receiver(name: str) -> None:
    messages = workload(name).decoded.messages
    requests = {m["index"]: m for m in messages if m["request"]}
    answers = [m for m in messages if not m["request"]]
    assert sorted(m["answers"] for m in answers) == sorted(requests)
    for answer in answers:
        request = requests[answer["answers"]]
        assert (answer["src"], answer["dst"]) == (request["dst"], request["src"])
        assert (answer["pipe"], answer["id"]) == (request["pipe"], request["id"])
        assert answer["time_ns"] >= request["end_time_ns"]


@pytest.mark.parametrize("name", VISIBLE)
def test_calls_and_answers(name: str) -> None:
    """Who called what with which values, in which context, and what came back."""
    run = workload(name)
    for call in run.calls():
        body, event = call.request["body"], call.event
        assert body["type"].endswith("_REMOTE_CALL") == (event["kind"] == "remote")
        assert (body["type"].startswith("SCRIPT")) == event["function"].startswith(("aten::", "__torch__."))
        assert body["async"] is False
        if event["function"].startswith("aten::"):
            assert body["schema"].startswith(body["function"] + "(")
        _check_answer(run, call)


def _check_answer(run: Workload, call: Call) -> None:
    body, answered = call.response["body"], call.answered
    if (
        "error" in answered and body["type"] == "PYTHON_RET"
    ):  # a Python function raised; the callee printed it
        shown = {key: body["error"][key] for key in ("type", "text")}
        ran = run.of("ran", worker=call.event["to"], function=call.event["function"])
        assert shown in [event["error"] for event in ran if "error" in event]
        # torch takes backslashes for escapes when it raises the error at the caller
        assert shown["text"].encode().decode("unicode_escape") in answered["error"]["text"]
        return
    if "error" in answered:
        assert body["type"] == "EXCEPTION"
        assert body["error"]["text"] == answered["error"]["text"]
        return
    if call.event["kind"] == "remote":
        handle = answered["value"]
        for shown in (call.request["body"], body):
            assert (shown["rref_id"], shown["fork_id"]) == (handle["rref_id"], handle["fork_id"])
        assert body["type"] == "REMOTE_RET"
        assert handle["owner"] == call.request["dst"]
        return
    assert body["type"] == ("SCRIPT_RET" if call.request["body"]["type"] == "SCRIPT_CALL" else "PYTHON_RET")
    assert body["error"] is None
    assert re.fullmatch(run.pattern(answered["value"], answered["tensors"]), body["value"])


@pytest.mark.parametrize("name", VISIBLE)
def test_functions_ran_while_their_call_was_open(name: str) -> None:
    run = workload(name)
    for call in run.calls():
        assert call.event["time_ns"] <= call.request["time_ns"] + CLOCK_NS
        if call.event["kind"] != "remote":
            assert call.response["end_time_ns"] <= call.answered["time_ns"]


@pytest.mark.parametrize("name", [name for name in VISIBLE if name != NO_TENSORS])
def test_tensors_of_calls_and_answers(name: str) -> None:
    """Both ends' view: elements as sent and as received, form and storages as received."""
    for call in workload(name).calls():
        sent, received = call.event["tensors"], (call.run or call.event)["tensors"]
        check_tensors(call.request["tensors"], sent, received)
        if "error" in call.answered or call.event["kind"] == "remote":
            assert call.response["tensors"] == []
        else:
            check_tensors(call.response["tensors"], call.answered["tensors"], call.answered["tensors"])


# --- distributed autograd -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts_and_who_takes_part(name: str) -> None:
    run = workload(name)
    names = {number: worker for worker, number in run.ids.items()}
    shown = {context["context_id"]: context for context in run.decoded.of("context")}
    made = {event["context_id"]: event["worker"] for event in run.of("context")}
    assert {number: context["creator"] for number, context in shown.items()} == made
    for number, context in shown.items():
        known = run.of("edges", context_id=number)
        touched = {event["worker"] for event in known if event["known_workers"]}
        touched |= {names[i] for event in known for i in event["known_workers"]}
        touched |= {event["worker"] for event in run.of("run", context_id=number)}
        touched.add(made[number])
        assert set(context["workers"]) == touched
        assert context["workers"][0] == made[number]


@pytest.mark.parametrize("name", CONTEXTS)
def test_edges_are_the_functions_that_workers_hold(name: str) -> None:
    """At the moment of each print: the send and receive functions of that worker in that context."""
    run = workload(name)
    messages = run.decoded.messages
    contexts = {context["context_id"]: context for context in run.decoded.of("context")}
    assert run.of("edges")
    for event in run.of("edges"):
        worker, now = event["worker"], event["time_ns"]
        edges = contexts[event["context_id"]]["edges"] if event["context_id"] in contexts else []
        so_far = [edge for edge in edges if messages[edge["forward"]]["time_ns"] < now]
        sent = sorted(edge["autograd_message_id"] for edge in so_far if edge["sender"] == worker)
        received = sorted(edge["autograd_message_id"] for edge in so_far if edge["receiver"] == worker)
        assert (sent, received) == (event["send"], event["recv"]), event["note"]
        spoken_to = {
            run.ids[m["dst"]]
            for m in messages
            if m["src"] == worker and context_of(m) == event["context_id"] and m["time_ns"] < now
        }
        assert sorted(spoken_to) == event["known_workers"]


@pytest.mark.parametrize("name", CONTEXTS)
def test_edges_point_to_their_messages(name: str) -> None:
    decoded = workload(name).decoded
    messages = decoded.messages
    gradients = [m for m in messages if m["type"] == "BACKWARD_AUTOGRAD_REQ"]
    used = Counter[int]()
    for context in decoded.of("context"):
        for edge in context["edges"]:
            forward = messages[edge["forward"]]
            assert (forward["src"], forward["dst"]) == (edge["sender"], edge["receiver"])
            envelope = next(e for e in forward["envelopes"] if "autograd_message_id" in e)
            assert envelope["autograd_message_id"] == edge["autograd_message_id"]
            assert edge["tensors_requiring_grad"] == sum(t["requires_grad"] for t in forward["tensors"])
            for index in edge["backward"]:
                back = messages[index]
                assert (back["src"], back["dst"]) == (edge["receiver"], edge["sender"])
                assert back["body"]["autograd_message_id"] == edge["autograd_message_id"]
                assert back["body"]["context_id"] == context["context_id"]
                assert len(back["body"]["grads"]) == edge["tensors_requiring_grad"]
            used.update(edge["backward"])
        cleanup = [m for m in messages if m["type"] == "CLEANUP_AUTOGRAD_CONTEXT_REQ"]
        own = [m["index"] for m in cleanup if m["body"]["context_id"] == context["context_id"]]
        assert context["cleanup"] == own
        assert own
    assert used == Counter(m["index"] for m in gradients)


@pytest.mark.parametrize("name", CONTEXTS)
def test_autograd_envelopes(name: str) -> None:
    run = workload(name)
    for message in run.decoded.messages:
        for position, envelope in enumerate(message["envelopes"]):
            if "context_id" not in envelope:
                continue
            assert envelope["from_worker_id"] == run.ids[message["src"]]
            assert envelope["autograd_message_id"] >> 48 == run.ids[message["src"]]
            assert position == len(message["envelopes"]) - 1  # the innermost
            assert envelope["wrapped_type"] == message["body"]["type"]


@pytest.mark.parametrize("name", [name for name in CONTEXTS if name != NO_TENSORS])
def test_gradients_are_those_that_arrived(name: str) -> None:
    """A leaf whose gradient comes by one message has exactly the bytes of that message."""
    run = workload(name)
    for event in run.of("gradients"):
        arrived = {
            tensor["sha256"]
            for message in run.decoded.messages
            if message["type"] == "BACKWARD_AUTOGRAD_REQ"
            and message["dst"] == event["worker"]
            and message["body"]["context_id"] == event["context_id"]
            for tensor in message["tensors"]
        }
        for leaf, reference in event["grads"].items():
            if (name, leaf) == ("basic_chain", "x"):
                continue  # two messages: see test_basic_chain_adds_two_gradients
            if reference is not None:
                assert event["tensors"][reference["tensor"]]["sha256"] in arrived
    assert run.of("gradients") or name.startswith("ps_race")


@pytest.mark.parametrize("name", CONTEXTS)
def test_every_backward_pass_sends_its_first_gradient(name: str) -> None:
    run = workload(name)
    passes = run.of("backward")
    for event in passes:
        sent = [
            m
            for m in run.decoded.messages
            if m["type"] == "BACKWARD_AUTOGRAD_REQ"
            and m["src"] == event["worker"]
            and m["body"]["context_id"] == event["context_id"]
        ]
        assert sent
        assert all(m["time_ns"] >= event["time_ns"] for m in sent)
        assert all(m["body"]["retain_graph"] is event["retain_graph"] for m in sent)
