"""`decode --calls` against what workers printed that they called, and what the jobs' scripts call."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import CHAIN, decode
from tests.places import recorded
from tests.truth import CALLS, CAPTURES, Workload, capture_of, context_of, same_function, workload

Row = dict[str, Any]
WORKLOADS = ("basic_chain", "bwd_boom", "ps_race", "rref_relay", "profiled_legacy", "draws", "pairs/base")
BOOM = CAPTURES / "bwd_boom.pcap.gz"
JOB = recorded("reports/job/plain.pcap")
RELAY = recorded("reports/concurrent/relay_plain1.pcap")


def calls(*arguments: object, every: bool = False) -> list[Row]:
    """The objects of a decoding; `every`: housekeeping among them."""
    ran = decode("--calls", "--format", "jsonl", *arguments)
    assert ran.code == 0
    return [line for line in ran.objects if line["kind"] == "call" and (every or not line["housekeeping"])]


def table(*arguments: object) -> list[str]:
    """The lines of the table."""
    ran = decode("--calls", *arguments)
    assert ran.code == 0
    return ran.out.splitlines()


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_call_that_a_worker_made_has_its_row(name: str) -> None:
    told = workload(name)
    rows = {row["request"]: row for row in calls(capture_of(name))}
    for event, message in told.sent():
        row = rows[message["index"]]
        assert (row["caller"], row["callee"]) == (event["worker"], event["to"])
        assert row["context_id"] == event["context_id"] == context_of(message)
        assert same_function(event["function"], {"function": row["function"]})
        assert told.same_arguments(event, row, forks=False)
        short = row["text"]
        for tensor in event["tensors"]:
            if not tensor.get("parts"):
                assert f"tensor[{','.join(map(str, tensor['shape']))}]" in short
    callers = [row for row in rows.values() if row["type"] in CALLS]
    assert len(callers) == len(told.sent())


@pytest.mark.parametrize("name", ["basic_chain", "bwd_boom", "rref_relay"])
def test_each_row_has_what_the_callee_returned(name: str) -> None:
    told: Workload = workload(name)
    rows = {row["request"]: row for row in calls(capture_of(name))}
    for call in told.calls():
        row = rows[call.request["index"]]
        assert row["answer"] == call.response["index"]
        assert row["latency_ns"] == row["end_time_ns"] - row["time_ns"]
        if call.event["kind"] == "remote":
            assert row["result"] == "RRef({}:{})".format(*call.answered["value"]["rref_id"])
        elif "value" in call.answered:
            pattern = told.pattern(call.answered["value"], call.answered["tensors"])
            assert re.fullmatch(pattern, row["result"])
            assert row["error"] is None


def test_a_job_with_a_remote_module_an_rref_and_an_optimizer() -> None:
    """captures/reports/job/train.py: five steps, a stage on each of two workers."""
    rows = calls(JOB)
    made = Counter((row["callee"], row["call"]) for row in rows if row["caller"] == "worker0")
    assert made["worker1", "Stage1.forward"] == made["worker2", "__mp_main__.forward2"] == 5
    assert made["worker1", "__mp_main__.Stage1"] == made["worker2", "__mp_main__.make2"] == 1
    assert made["worker2", "__mp_main__.params2"] == 1
    steps = [row for row in rows if str(row["function"]).endswith("_local_optimizer_step")]
    assert Counter(row["callee"] for row in steps) == {"worker1": 5, "worker2": 5}
    forward = [row for row in rows if row["call"] == "Stage1.forward"]
    assert {(row["text"], row["method"], row["class"]) for row in forward} == {
        ("Stage1.forward(tensor[6,8])", "forward", "__mp_main__.Stage1")
    }
    assert {row["function"] for row in forward} == {"_remote_module_non_scriptable._remote_forward"}
    assert [row["text"] for row in rows if row["call"] == "__mp_main__.Stage1"] == [
        "__mp_main__.Stage1('plain')"
    ]
    gradients = Counter(row["text"] for row in rows if row["type"] == "BACKWARD_AUTOGRAD_REQ")
    assert gradients == {
        f"gradients of context 0:{step}: tensor[6,{size}]": 1 if size == 4 else 2
        for step in range(5)
        for size in (4, 16)
    }
    assert not [row for row in rows if row["type"].startswith(("RREF_", "CLEANUP_"))]


def test_calls_stand_below_the_one_that_they_were_sent_for() -> None:
    """relay(i, x) calls leaf(i, x); eight of them at the same time."""
    lines = table(RELAY)[1:17]
    for outer, inner in zip(lines[::2], lines[1::2], strict=True):
        found = re.search(r"  relay\.relay\((\d), tensor\[4\]\)  = tensor\[4\]$", outer)
        assert found is not None
        assert inner.endswith(f"  └ relay.leaf({found[1]}, tensor[4])  = tensor[4]")


def test_an_uncertain_parent_is_said_in_words() -> None:
    path = CAPTURES / "pairs/base.pcap.gz"
    uncertain = [row for row in calls(path) if not row["parent_certain"]]
    assert uncertain
    lines = {int(line.split()[0]): line for line in table(path)[1:] if line[:6].strip().isdigit()}
    for row in uncertain:
        line = lines[row["request"]]
        assert "└" not in line
        assert f"  for {' or '.join(f'#{parent}' for parent in row['parents'])}" in line


def test_errors_and_requests_without_an_answer() -> None:
    lines = table(BOOM)
    failed = [line for line in lines if "✗ Error on Node" in line]
    assert len(failed) == 2
    assert "gradients of context 0:0: tensor[3]  ✗" in failed[0]
    assert "4 calls: 2 failed" in lines
    assert [row["error"]["node_id"] for row in calls(BOOM) if row["error"]] == [2, 1]
    killed = recorded("faults/dies.pcap")
    (row,) = [row for row in calls(killed) if row["answer"] is None]
    assert (row["result"], row["error"], row["latency_ns"], row["end_time_ns"]) == (None,) * 4
    (line,) = [line for line in table(killed) if "no answer" in line]
    assert row["text"] in line
    assert any(line.endswith("1 without an answer") for line in table(killed))


def test_housekeeping_is_hidden_counted_and_shown_on_demand() -> None:
    messages = [line for line in decode(JOB, "--format", "jsonl").objects if line["kind"] == "message"]
    hidden = sum(line["housekeeping"] for line in messages)
    assert f"{hidden} housekeeping messages hidden; --all shows them" in table(JOB)
    everything = table(JOB, "--all")
    assert not any("hidden" in line for line in everything)
    requests = sum(line["request"] for line in messages)
    assert f"{requests} requests" in everything
    assert len(calls(JOB, every=True)) == requests
    assert sum("RREF_USER_DELETE RRef(" in line for line in everything) == sum(
        line["type"] == "RREF_USER_DELETE" for line in messages
    )
    shown = table(CHAIN, "-f", "housekeeping")
    assert shown == [
        "shown: 0 of 6 calls, those that match housekeeping",
        "12 housekeeping messages hidden; --all shows them",
    ]


def test_a_filter_asks_a_request_and_its_answer_together() -> None:
    every = calls(RELAY, every=True)
    for caller in {row["caller"] for row in every}:
        picked = calls(RELAY, "-f", f"from == {caller}", every=True)
        assert picked == [row for row in every if row["caller"] == caller]
    errors = [row for row in calls(BOOM, every=True) if row["error"]]
    kinds = {row["type"] for row in errors}
    (kind,) = kinds
    assert calls(BOOM, "-f", f"error and type == {kind}", every=True) == errors
    assert calls(BOOM, "-f", "not error", every=True) == [
        row for row in calls(BOOM, every=True) if not row["error"]
    ]
    nested = recorded("pairs/error_nested.pcap.gz")
    failed = [row["request"] for row in calls(nested) if row["error"] and row["call"] == "training.linear"]
    assert [row["request"] for row in calls(nested, "-f", "error and call ~ linear")] == failed
    assert len(failed) == 1


def test_a_filter_picks_calls_by_what_either_message_says() -> None:
    errors = [row["request"] for row in calls(BOOM, "-f", "error")]
    assert errors == [row["request"] for row in calls(BOOM) if row["error"]]
    last = decode(BOOM, "--calls", "--format", "jsonl", "-f", "error").objects[-1]
    assert last == {
        "kind": "filter",
        "filter": "error",
        "matched": 2,
        "shown": {"calls": 2},
        "of": {"calls": 16},
    }
    assert "shown: 2 of 4 calls, those that match error" in table(BOOM, "-f", "error")
    by_call = [row["call"] for row in calls(JOB, "-f", "call ~ 'Stage1.forward'")]
    assert by_call == ["Stage1.forward"] * 5
    inner = [line for line in table(RELAY, "-f", "fn ~ leaf") if "relay.leaf" in line]
    assert len(inner) == 8
    assert all(re.search(r"= tensor\[4\]  for #\d+$", line) for line in inner)


def test_a_document_has_the_same_objects() -> None:
    lines = decode(BOOM, "--calls", "--format", "jsonl").objects
    document = json.loads(decode(BOOM, "--calls", "--format", "json").out)
    assert document == {"schema": 1, "calls": lines}
    picked = json.loads(decode(BOOM, "--calls", "--format", "json", "-f", "error").out)
    assert [row["request"] for row in picked["calls"]] == [16, 17]
    assert picked["filter"]["matched"] == 2


def test_standard_input_and_what_does_not_go_together(tmp_path: Path) -> None:
    assert decode("-", "--calls", stdin=CHAIN.read_bytes()).out == decode(CHAIN, "--calls").out
    for options, words in (
        (("--stream",), "--stream and --calls can't be used together"),
        (("--message", "1"), "--message and --calls can't be used together"),
    ):
        ran = decode(CHAIN, "--calls", *options)
        assert (ran.code, ran.out) == (2, "")
        assert words in ran.err
    assert "--live can't be read twice" in decode("--live", "lo", "--calls").err
    assert decode(CAPTURES / "transport_matrix_default.pcap", "--calls").out == "no calls\n"
