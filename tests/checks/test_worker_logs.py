"""Text logs beside a capture: whose lines, when, who was gone first. Truth is what the script and TCP did."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.checks.wire_facts import ConnectionEnd
from rpcinspect.checks.worker_logs import _names_of, first_gone, join_logs
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.session.model import LogEvent, Session, WorkerLogs
from rpcinspect.workerlog.read import read_lines
from tests.logs import log_of, message

CAPTURES = Path(__file__).resolve().parent.parent.parent / "captures"
KILLED = CAPTURES / "logs/killed.pcap.gz"
ZONES = {"UTC": 0, "Asia/Kolkata": 19800, "America/New_York": -18000}
SECOND = 10**9


@cache
def session(path: Path = KILLED) -> tuple[Session, tuple[ConnectionEnd, ...]]:
    with Decoding([str(path)]) as decoding:
        list(decoding.records())
        return decoding.session, tuple(decoding.ends)


def text_of(worker: str) -> str:
    return (CAPTURES / f"logs/killed.{worker}.log").read_text()


def joined(*texts: str, path: Path = KILLED, zone_s: int | None = None) -> WorkerLogs:
    logs = [read_lines(f"{number}.log", text.splitlines()) for number, text in enumerate(texts)]
    return join_logs(*session(path)[:1], logs, session(path)[1], zone_s)


def truth(kind: str) -> list[dict[str, object]]:
    lines = (CAPTURES / "logs/killed.truth").read_text().splitlines()
    events = [json.loads(line.removeprefix("TRUTH ")) for line in lines]
    return [event for event in events if event["event"] == kind]


def lost(logs: WorkerLogs) -> list[LogEvent]:
    return [event for event in logs.events if event.lost]


def test_time_zones_are_found() -> None:
    logs = joined(*[text_of(f"worker{n}") for n in range(3)])
    assert [file.zone_s for file in logs.files] == [ZONES[str(event["zone"])] for event in truth("log")]
    assert [file.workers for file in logs.files] == [("worker0",), (), ("worker2",)]


def test_lines_are_where_the_script_says() -> None:
    """A worker's log has lost the killed one after it was killed, before the worker itself could say so."""
    [killed] = truth("killed")
    [noticed] = truth("lost")
    events = [event for event in lost(joined(text_of("worker2"))) if event.peer == "worker1"]
    assert events
    for event in events:
        assert event.time_ns is not None
        assert int(str(killed["time_ns"])) <= event.time_ns <= int(str(noticed["time_ns"])) + SECOND // 20


def test_the_killed_worker_was_gone_first() -> None:
    logs = joined(text_of("worker0"), text_of("worker2"))
    first = first_gone(logs)
    assert first is not None
    assert first.peer == truth("killed")[0]["worker"] == "worker1"
    times = [event.time_ns for event in lost(logs) if event.time_ns is not None]
    assert times == sorted(times)


def test_logs_of_torch_before_2_4_have_no_times() -> None:
    """Theirs come from the connections that they speak of."""
    texts = [re.sub(r"\[W\d{4} \S+ ", "[W ", text_of(worker)) for worker in ("worker0", "worker2")]
    logs = joined(*texts)
    assert {event.placed for event in lost(logs)} == {"connection"}
    first = first_gone(logs)
    assert first is not None
    assert first.peer == "worker1"
    assert any("before 2.4" in note for file in logs.files for note in file.notes)


def test_a_zone_that_is_said_is_taken() -> None:
    logs = joined(text_of("worker2"), zone_s=-18000)
    assert lost(logs)[0].time_ns == lost(joined(text_of("worker2")))[0].time_ns
    [file] = joined(text_of("worker2"), zone_s=0).files
    assert file.zone_s is None
    assert any("no time zone" in note for note in file.notes)


def test_times_that_know_their_zone() -> None:
    at = session()[0].captures[0].first_time_ns
    assert at is not None
    text = "2026-11-28T{}Z RPC agent for worker0 sent request #5 to worker1"
    seconds = at // SECOND % 86400
    clock = f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    [event] = joined(text.format(clock)).events
    assert (event.placed, event.time_ns) == ("zone", at // SECOND * SECOND)


def test_the_log_of_another_run() -> None:
    other = CAPTURES / "basic_chain.pcap"
    [file] = joined(text_of("worker2"), path=other).files
    assert any("has no worker worker2" in note for note in file.notes)
    moved = text_of("worker0").replace("[W1128", "[W0301")
    [file] = joined(moved).files
    assert file.zone_s is None
    assert any("another run" in note for note in file.notes)
    assert all(event.time_ns is None for event in joined(moved).events)


def test_requests_are_found_by_their_id() -> None:
    found, _ = session()
    row = next(
        n
        for n in range(len(found.messages))
        if found.source(n) == "worker0" and found.messages.from_client[n]
    )
    number, peer = found.messages.id[row], found.destination(row)
    [event] = joined(f"[W a.cpp:1] RPC agent for worker0 sent request #{number} to {peer}").events
    assert event.message == found.index[row]
    [event] = joined(f"[W a.cpp:1] RPC agent for {peer} received request #{number} from worker0").events
    assert event.message == found.index[row]


def test_types_and_nodes_have_names() -> None:
    [failed, released] = joined(
        "Received error while processing request type 275: Unexpected end of pickler archive\n"
        "[E container.cpp:248] Could not release Dist Autograd Context on node 2: pipe closed"
    ).events
    assert failed.type == "CLEANUP_AUTOGRAD_CONTEXT_REQ"
    assert "request type 275 (CLEANUP_AUTOGRAD_CONTEXT_REQ): " in failed.text
    assert released.peer == "worker2"


@pytest.mark.parametrize("text", ["", "\n\n", "\x00\xff" * 50, "[W9999 99:99:99.9 a.cpp:1] RPC agent for"])
def test_logs_of_nothing(text: str) -> None:
    logs = joined(text)
    assert logs.events == ()
    assert logs.files[0].notes == ("no line of it is about RPC",)


def test_calls_that_lost_their_connection_tell_when_too(tmp_path: Path) -> None:
    """In a log, which knows nothing of connections."""
    request = message(kind="PYTHON_RREF_FETCH_CALL", id=1, time_ns=10 * SECOND)
    failed = {"rpc": "failed", "src": "worker0", "dst": "worker1", "id": 1, "reason": "connection"}
    record = json.dumps(failed | {"time_ns": 12 * SECOND + 5}).encode() + b"\n"
    path = tmp_path / "a.rpclog"
    path.write_bytes(log_of(request, record))
    line = "RPC agent for worker0 encountered error when reading incoming response from worker1: EOF"
    logs = (read_lines("plain", [f"[W a.cpp:1] {line}"]), read_lines("timed", [f"05:30:13 {line}"]))
    with Decoding([str(path)], Options(worker_logs=logs)) as decoding:
        list(decoding.records())
        found = decoding.session.worker_logs
    assert found is not None
    placed = [(event.time_ns, event.placed) for event in found.events]
    assert placed == [(12 * SECOND + 5, "connection"), (13 * SECOND, "fit")]
    assert found.files[1].zone_s == 19800


def test_an_id_of_two_jobs_names_nobody() -> None:
    known, _ = session()
    again = replace(known, workers=(*known.workers, *(replace(w, job=1) for w in known.workers)))
    assert _names_of(again) == _names_of(known) == {0: "worker0", 1: "worker1", 2: "worker2"}
    other = replace(known, workers=(*known.workers, replace(known.workers[1], name="x", job=1)))
    assert _names_of(other) == {0: "worker0", 2: "worker2"}
