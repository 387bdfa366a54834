"""Spans, as OpenTelemetry's own classes read them, against what workers printed and what decode says."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from rpcinspect.cli.inputs import read_run
from rpcinspect.export.otlp.requests import otlp_lines
from rpcinspect.export.otlp.spans import MAX_LINKS
from rpcinspect.export.otlp.values import MAX_STACK, MAX_TEXT
from rpcinspect.pipeline import Decoding
from tests.cli.runner import visible
from tests.decoded import decode
from tests.export.otlp.official import ReadSpan, attributes, read
from tests.filter.from_json import read_filter
from tests.logs import log_of, message
from tests.places import ROOT, recorded
from tests.truth import CLOCK_NS, Workload, capture_of

CLIENT, SERVER = Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_SERVER
UNSPECIFIED = Span.SPAN_KIND_UNSPECIFIED


def exported(path: Path, expression: str | None = None) -> list[ReadSpan]:
    return read(written(path, expression))


def written(path: Path, expression: str | None = None) -> bytes:
    with ExitStack() as stack:
        decoding = stack.enter_context(Decoding((str(path),)))
        run, shown = read_run(decoding, None if expression is None else read_filter(expression))
        return b"".join(otlp_lines(run, shown))


def by_side(spans: Sequence[ReadSpan], kind: int) -> dict[int, ReadSpan]:
    """Spans of this kind by the index of the request."""
    found = {one.request: one for one in spans if one.span.kind == kind}
    assert len(found) == sum(one.span.kind == kind for one in spans)
    return found


# --- against the workers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bwd_boom", "rref_relay"])
def test_spans_are_where_the_workers_were(name: str) -> None:
    """A call lies between its caller's own two times, and the function ran within the span of its callee."""
    workload = Workload(name)
    spans = exported(capture_of(name))
    clients, servers = by_side(spans, CLIENT), by_side(spans, SERVER)
    calls = workload.calls()
    assert sum(call.run is not None for call in calls) >= 2
    for call in calls:
        client, server = (side[call.request["index"]] for side in (clients, servers))
        assert (client.worker, server.worker) == (call.event["worker"], call.event["to"])
        assert server.span.parent_span_id == client.span.span_id
        assert client.span.trace_id == server.span.trace_id
        assert client.told["code.function.name"].split(".")[0] == call.event["function"].split(".")[0]
        assert client.span.start_time_unix_nano >= call.event["time_ns"] - CLOCK_NS
        if call.event["kind"] == "rpc_sync":
            assert client.span.end_time_unix_nano <= call.answered["time_ns"]
        if call.run is not None:
            assert server.span.start_time_unix_nano <= call.run["time_ns"]
            ended = workload.of("ran", **{key: call.run[key] for key in ("worker", "thread", "function")})
            later = [event["time_ns"] for event in ended if event["time_ns"] >= call.run["time_ns"]]
            assert not later or server.span.end_time_unix_nano >= later[0] - CLOCK_NS


def test_errors_of_a_backward_pass_are_those_that_were_raised() -> None:
    (cascade,) = Workload("bwd_boom").of("cascade")
    spans = exported(capture_of("bwd_boom"))
    failed = [one for one in spans if one.span.status.code == Status.STATUS_CODE_ERROR]
    assert {one.told["torchrpc.type"] for one in failed} == {"BACKWARD_AUTOGRAD_REQ"}
    assert {one.told["error.type"] for one in failed} == {"EXCEPTION"}  # no class travels with it
    assert [one.worker for one in failed if one.span.kind == SERVER] == cascade["path"][1::-1]
    for one in failed:
        assert one.span.status.message == "gradient exploded on purpose"
        events = [attributes(event) for event in one.span.events]
        assert len(events) == (1 if one.span.kind == SERVER else 0)
        for event in events:
            assert event["exception.message"] == "gradient exploded on purpose"
            assert event["exception.stacktrace"] in cascade["error"]["text"]
    assert len({one.span.trace_id for one in failed}) == 1


# --- against decode -----------------------------------------------------------------------------------------

READ = (
    *("basic_chain.pcap", "bwd_boom.pcap.gz", "ps_race.pcap.gz", "reinit.pcap.gz", "profiled_legacy.pcap"),
    *("reports/job/nan_late.pcap.gz", "reports/latency/waits.rpclog.gz", "reports/ends/ends.rpclog"),
)


@pytest.mark.parametrize("name", READ)
def test_spans_say_what_decode_says(name: str) -> None:
    path = recorded(name)
    lines, spans = decode(path), exported(path)
    messages = lines.messages
    clients, servers = by_side(spans, CLIENT), by_side(spans, SERVER)
    serving = {**clients, **servers}
    requests = [line for line in messages if line["request"]]
    assert sorted(clients) == [line["index"] for line in requests]
    for line in requests:
        client = clients[line["index"]]
        answer = None if line["answered_by"] is None else messages[line["answered_by"]]
        assert (client.worker, client.told["service.peer.name"]) == (line["src"], line["dst"])
        assert client.told["torchrpc.type"] == line["type"]
        assert client.told.get("torchrpc.answer") == line["answered_by"]
        assert client.span.name == client.told.get("rpc.method", line["body"]["type"])
        assert client.span.start_time_unix_nano == line["time_ns"]
        if "error.type" not in client.told:
            assert answer is None or client.span.end_time_unix_nano == answer["end_time_ns"]
            assert not client.span.events
        if answer is not None and client.told.get("error.type") not in ("timeout", "connection"):
            assert bool(answer["body"].get("error")) == ("error.type" in client.told)
        check_parents(line, client, serving)
    for index, server in servers.items():
        line = messages[index]
        assert server.span.start_time_unix_nano == line["end_time_ns"]
        assert server.span.end_time_unix_nano == messages[line["answered_by"]]["time_ns"]
        assert server.worker == line["dst"]
    check_gradients(lines.of("context"), messages, clients)
    orphans = [line["index"] for line in messages if not line["request"] and line["answers"] is None]
    assert sorted(by_side(spans, UNSPECIFIED)) == orphans


def check_parents(line: dict[str, Any], client: ReadSpan, serving: dict[int, ReadSpan]) -> None:
    """A parent only where it is certain; the trace is its parent's. Others are links."""
    possible = [link for link in client.span.links if attributes(link)["torchrpc.link"] == "possible-parent"]
    if line["parent_certain"] and line["parents"]:
        parent = serving[line["parents"][0]].span
        assert (client.span.parent_span_id, client.span.trace_id) == (parent.span_id, parent.trace_id)
    else:
        assert client.span.parent_span_id == b""
    assert client.told.get("torchrpc.parent.uncertain", False) == (not line["parent_certain"])
    candidates = [] if line["parent_certain"] else line["parents"]
    assert [(link.trace_id, link.span_id) for link in possible] == [
        (serving[index].span.trace_id, serving[index].span.span_id) for index in candidates
    ]


def check_gradients(
    contexts: list[dict[str, Any]], messages: list[dict[str, Any]], clients: dict[int, ReadSpan]
) -> None:
    """Each gradient is linked to the call whose forward message made its edge."""
    expected = set()
    for edge in (edge for context in contexts for edge in context["edges"]):
        forward = messages[edge["forward"]]
        call = forward["index"] if forward["request"] else forward["answers"]
        if call in clients:
            expected |= {(backward, call) for backward in edge["backward"]}
    found = set()
    for index, client in clients.items():
        for link in client.span.links:
            about = attributes(link)
            if about["torchrpc.link"] == "forward":
                found.add((index, about["torchrpc.request"]))
                assert link.span_id == clients[about["torchrpc.request"]].span.span_id
                assert link.trace_id == clients[about["torchrpc.request"]].span.trace_id
    assert found == expected


def test_ambiguous_parents_are_among_those_that_were_read() -> None:
    assert any(not line["parent_certain"] for line in decode(recorded(READ[-2])).messages)


def test_names_of_two_jobs_are_told_apart() -> None:
    spans = exported(recorded("reports/names/two_jobs_late.pcap"))
    assert len({one.resource["service.namespace"] for one in spans}) == 2
    assert {one.resource.get("service.namespace") for one in exported(capture_of("basic_chain"))} == {None}


# --- against the page ---------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "tracing.md"


def test_the_page_shows_a_real_span() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    request = json.loads(written(capture_of("bwd_boom"), "not housekeeping"))
    spans = [span for r in request["resourceSpans"] for scope in r["scopeSpans"] for span in scope["spans"]]
    assert json.loads(block) in spans


def test_the_page_has_every_attribute() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| attribute |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    found: set[str] = set()
    for name in (*READ, "reports/names/two_jobs_late.pcap"):
        for one in exported(recorded(name)):
            found |= {*one.resource, *one.told}
            for each in (*one.span.links, *one.span.events):
                found |= set(attributes(each))
    assert {key for row in rows for key in re.findall("`([^`]+)`", row)} == found


# --- ids ----------------------------------------------------------------------------------------------------


def test_two_exports_have_the_same_ids_whatever_they_show() -> None:
    path = capture_of("bwd_boom")
    whole = written(path)
    assert written(path) == whole
    some = exported(path, "error")
    ids = {(one.request, one.span.kind): one.span.SerializeToString() for one in read(whole)}
    assert 0 < len(some) < len(ids)
    for one in some:
        assert one.span.SerializeToString() == ids[one.request, one.span.kind]
    others = {one.span.trace_id for one in exported(capture_of("basic_chain"))}
    assert not others & {one.span.trace_id for one in read(whole)}
    assert len({one.span.span_id for one in read(whole)}) == len(ids)


# --- what the capture can't tell ----------------------------------------------------------------------------


def test_between_hosts_nobody_knows_when_a_request_arrived(tmp_path: Path) -> None:
    """worker1 gets an address of its own: the times at which it served are then unknown, and not told."""
    spans = exported(moved(capture_of("basic_chain"), 46111, tmp_path))
    served = {(one.worker, one.told["service.peer.name"]) for one in spans if one.span.kind == SERVER}
    asked = {(one.worker, one.told["service.peer.name"]) for one in spans if one.span.kind == CLIENT}
    assert asked == {("worker0", "worker1"), ("worker1", "worker0")}
    assert served == {("worker0", "worker1")}
    (address,) = {
        (one.told["server.address"], one.told["network.peer.address"], one.told["server.port"])
        for one in spans
        if one.worker == "worker0" and one.span.kind == CLIENT
    }
    assert address == ("10.0.0.2", "10.0.0.2", 46111)


def moved(path: Path, port: int, folder: Path) -> Path:
    """The capture with whoever listens at a port on another host."""
    data = bytearray(path.read_bytes())
    at, address = 24, bytes((10, 0, 0, 2))
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        ip = at + 16 + 14
        tcp = ip + 4 * (data[ip] & 15)
        for field, ends in ((ip + 12, tcp), (ip + 16, tcp + 2)):
            if int.from_bytes(data[ends : ends + 2], "big") == port:
                data[field : field + 4] = address
        at += 16 + length
    out = folder / path.name
    out.write_bytes(data)
    return out


def test_a_log_has_the_times_of_callers_only() -> None:
    spans = exported(recorded("reports/ends/ends.rpclog"))
    assert {one.span.kind for one in spans} == {CLIENT}
    assert not any("server.address" in one.told for one in spans)
    given_up = [one for one in spans if one.told.get("error.type") == "connection"]
    assert len(given_up) == 2
    for one in given_up:
        (event,) = one.span.events
        assert one.told["torchrpc.unanswered"]
        assert event.time_unix_nano == one.span.end_time_unix_nano
        assert attributes(event)["exception.message"] == one.span.status.message


# --- hostile and long ---------------------------------------------------------------------------------------


def call(module: str, name: str, **keys: Any) -> bytes:
    """A call of Python, as log-format.md has it, with names of any characters."""
    names = [part.encode("utf-8", "surrogatepass") for part in (module, name)]
    texts = b"".join(b"X" + len(text).to_bytes(4, "little") + text for text in names)
    udf = b"\x80\x04ctorch.distributed.rpc.internal\nPythonUDF\n" + texts + b"\x93)}\x87\x81."
    return message(kind="PYTHON_CALL", payload=b"\x00" + udf, **keys)


HOSTILE = (
    "]]>\"'\n::error::\x1b[31m\x00\u202egnp.exe",
    "</script><script>",
    "x" * 1_000_000,
    "\U0001f600" * 5_000,
)


def test_captured_text_is_harmless_and_cut(tmp_path: Path) -> None:
    log = tmp_path / "hostile.rpclog"
    records = []
    for number, name in enumerate(HOSTILE):
        times, error = (10 * number + 1, 10 * number + 2), f"{name}\n".encode() * 3
        src = name[:1000]
        records.append(call("m", name, id=number, src=src, time_ns=times[0]))
        records.append(message("worker1", src, "EXCEPTION", error, id=number, time_ns=times[1]))
    log.write_bytes(log_of(*records))
    spans = exported(log)
    assert len(spans) == len(HOSTILE)
    for one in spans:
        assert one.span.status.code == Status.STATUS_CODE_ERROR
        (event,) = one.span.events
        about = attributes(event)
        assert len(about["exception.stacktrace"]) <= MAX_STACK
        lines = [one.worker, one.span.name, one.span.status.message, about["exception.message"]]
        lines += [value for value in one.told.values() if isinstance(value, str)]
        for text in lines:
            assert len(text) <= MAX_TEXT
            assert "\n" not in text
        assert all(map(visible, [*lines, about["exception.stacktrace"]]))
    assert "\\x1b[31m\\x00\\u202e" in min(spans, key=lambda one: one.request).span.name


def test_many_possible_parents_are_counted_and_many_calls_are_many_lines(tmp_path: Path) -> None:
    count = 1_300
    records = [call("m", "serve", id=number, time_ns=number + 1) for number in range(count)]
    records.append(call("m", "inner", src="worker1", dst="worker2", id=count, time_ns=count + 1))
    log = tmp_path / "many.rpclog"
    log.write_bytes(log_of(*records))
    data = written(log)
    assert data.count(b"\n") > 1
    inner = by_side(read(data), CLIENT)[count]
    possible = decode(log).messages[count]["parents"]
    assert [attributes(link)["torchrpc.request"] for link in inner.span.links] == possible[:MAX_LINKS]
    assert inner.span.dropped_links_count == len(possible) - MAX_LINKS > 0
    assert inner.span.parent_span_id == b""
