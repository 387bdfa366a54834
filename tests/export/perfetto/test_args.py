"""What a trace says of calls, messages and findings, against what other views say of them."""

from __future__ import annotations

import json

import orjson
import pytest

from rpcinspect.cli.inputs import read_run
from rpcinspect.export.perfetto.args import (
    MAX_NAME,
    MAX_TENSORS,
    call_args,
    finding_args,
    message_args,
    serve_args,
    what,
)
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.callee import Name
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Finding
from tests.decoded import decode
from tests.views.opened import CAPTURES

NAMES = ("basic_chain.pcap", "bwd_boom.pcap.gz", "dtype_zoo.pcap.gz", "rref_relay.pcap.gz")


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def read(name: str) -> RunModel:
    with Decoding((str(CAPTURES / name),)) as decoding:
        run, _ = read_run(decoding)
        run.causes  # noqa: B018 - read while the capture is open
    return run


def test_messages_are_those_of_the_contract(name: str) -> None:
    run = read(name)
    lines = [line for line in decode(CAPTURES / name).lines if line["kind"] == "message"]
    for index, (record, line) in enumerate(zip(run.messages, lines, strict=True)):
        args = message_args(index, record)
        assert orjson.dumps(args)
        assert args["type"] == line["type"]
        assert args["packet"] == line["location"]["packet"]
        parts = {part for tensor in line["tensors"] for part in tensor["parts"].values()}
        whole = [t for i, t in enumerate(line["tensors"]) if i not in parts]
        told = [f"{t['dtype']}{json.dumps(t['shape'], separators=(',', ':'))}" for t in whole]
        assert args.get("tensors", []) == told[:MAX_TENSORS]
        assert args.get("more_tensors", 0) == max(0, len(told) - MAX_TENSORS)
        storages = {t["storage"]: t["storage_nbytes"] or 0 for t in line["tensors"]}
        assert args["bytes"] >= sum(storages.values())


def test_both_sides_of_a_call_name_the_same_messages(name: str) -> None:
    run = read(name)
    assert run.exchanges.calls
    for call in run.exchanges.calls:
        caller, callee = call_args(call, [7], True), serve_args(call)
        assert (caller["request"], caller["answer"]) == (callee["request"], callee["answer"])
        assert (caller["callee"], callee["caller"]) == (call.callee, call.caller)
        assert caller["parent"] == 7
        assert "parent" not in call_args(call, [], True)
        assert call_args(call, [7, 3], False)["ambiguous parents"] == [7, 3]
        assert ("context" in caller) == (call.context is not None)
        assert caller["request_bytes"] == message_args(call.index, call.request)["bytes"]


def test_failures_are_marked() -> None:
    run = read("bwd_boom.pcap.gz")
    failures = [call for call in run.exchanges.calls if call_args(call, [], True).get("failed")]
    assert [call.response and call.response.rpc.command.__class__.__name__ for call in failures] == [
        "ExceptionResponse"
    ] * 2


def test_long_names_are_cut_and_hostile_ones_stay_text() -> None:
    call: Exchange = read("basic_chain.pcap").exchanges.calls[0]
    call.name = Name("x" * 10_000, "")
    assert len(what(call)) == MAX_NAME
    call.name = Name("\udcff\x1b[31m", "")
    assert json.loads(orjson.dumps(what(call))) == "\\xff\x1b[31m"
    assert orjson.dumps(call_args(call, [], True))
    call.name = call.function = None
    assert what(call) == "PYTHON_CALL"


def test_calls_through_an_rref_are_named_by_class_and_method() -> None:
    calls = read("reports/latency/backward_elsewhere.pcap.gz").exchanges.calls
    helped = [call for call in calls if call.function == "rnn._call_method"]
    assert {what(call) for call in helped} == {"EmbeddingTable.forward", "Decoder.forward"}
    assert {call_args(call, [], True)["function"] for call in helped} == {"rnn._call_method"}


def test_a_finding_is_told_in_full() -> None:
    finding = Finding(code="c", severity="info", text="t\udcff", messages=(1, 2), workers=("a",))
    assert finding_args(finding) == {
        "text": "t\\xff",
        "remedy": None,
        "messages": [1, 2],
        "workers": ["a"],
    }
