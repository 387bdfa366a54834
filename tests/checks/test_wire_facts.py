"""What is taken from the TCP stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rpcinspect.checks.wire_facts import ConnectionEnd, ConnectionEnds, WireFacts
from rpcinspect.pipeline import Decoding
from rpcinspect.session.model import Finding
from tests.checks.talks import of_capture
from tests.logs import log_of, message
from tests.session.records import pipe
from tests.tensorpipe.conversations import Hole, Network, PipeTalk, Said, play
from tests.truth import capture_of


def test_nothing() -> None:
    assert WireFacts.of([]) == WireFacts()


def test_holes() -> None:
    network = Network()
    talk = PipeTalk(network)
    talk.send(Said(id=1, payload=b"x" * 500))
    outcome = play(
        network, holes=[Hole(talk.descriptor, True, 100, 130), Hole(talk.descriptor, True, 200, 201)]
    )
    wire = WireFacts.of(outcome.tcp.connections)
    flow = str(network.flows[talk.descriptor])
    assert wire.holes == ((flow, 2, 31),)
    assert wire.damaged == {flow}
    assert (wire.cut_bytes, wire.conflicts) == (0, ())


def test_the_end_of_a_connection_is_known() -> None:
    """A worker died in this run, and the other one is told by its missing answer."""
    _, found = of_capture("faults/dies")
    assert any("it closed the connection first" in finding.text for finding in found)


def test_an_end_belongs_to_the_pipe_of_its_time() -> None:
    """A port that is used again."""

    def end(begin_ns: int, by_client: bool) -> ConnectionEnd:
        return ConnectionEnd(
            flow="10.0.0.1:1000>10.0.0.2:5000",
            begin_ns=begin_ns,
            last_ns=begin_ns + 9,
            by_client=by_client,
            how="closed",
            time_ns=begin_ns + 9,
        )

    ends = ConnectionEnds([end(0, True), end(100, False)])
    made = pipe()
    for first_ns, by_client in ((5, True), (105, False)):
        made.first_ns = first_ns
        found = ends.of(made)
        assert found is not None
        assert found.by_client is by_client
    made.first_ns = 50
    assert ends.of(made) is None


# --- of a log: losses and ends, and what findings make of them ----------------------------------------------

CALL = message(kind="CLEANUP_AUTOGRAD_CONTEXT_REQ", payload=b"\x80\x02K\x00.", id=1)
LATER = message(kind="CLEANUP_AUTOGRAD_CONTEXT_REQ", payload=b"\x80\x02K\x00.", id=2, time_ns=10**12)
RPC = message(kind="PYTHON_RREF_FETCH_CALL", id=1)


def record(kind: str, **keys: Any) -> bytes:
    return json.dumps({"rpc": kind} | keys).encode() + b"\n"


def findings(folder: Path, *records: bytes) -> list[Finding]:
    path = folder / "a.rpclog"
    path.write_bytes(log_of(*records))
    with Decoding([str(path)]) as decoding:
        assert len(list(decoding.records())) <= 2
        return list(decoding.session.findings)


def test_a_request_without_an_answer(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, RPC, LATER)[:1]
    assert (found.code, found.severity) == ("unanswered-request", "error")
    (found,) = findings(tmp_path, RPC)
    assert found.severity == "info"
    (found,) = findings(tmp_path, RPC, record("span", time_ns=0, end_ns=10**12))
    assert found.severity == "error"


def test_who_closed(tmp_path: Path) -> None:
    end = {"src": "worker0", "dst": "worker1", "how": "reset", "time_ns": 5}
    (found,) = findings(tmp_path, RPC, record("closed", by="dst", **end))
    assert "it closed the connection first" in found.text
    (found,) = findings(tmp_path, RPC, record("closed", by="src", **end))
    assert "worker0 itself closed" in found.text
    with Decoding([str(tmp_path / "a.rpclog")]) as decoding:
        list(decoding.records())
        (ended,) = decoding.ends
        assert (ended.how, ended.by_client, ended.time_ns) == ("reset", True, 5)


def test_losses_explain_what_is_missing(tmp_path: Path) -> None:
    lost = {"src": "worker1", "dst": "worker0", "request": False}
    (found,) = findings(tmp_path, RPC, LATER, record("lost", **lost))
    assert (found.code, found.severity) == ("capture-gap", "warning")
    assert "worker1 → worker0" in found.text
    lost = {"src": "worker0", "dst": "worker1", "request": True}
    codes = [found.code for found in findings(tmp_path, RPC, LATER, record("lost", **lost))]
    assert "unanswered-request" in codes


def test_of_losses_each_direction_is_told_once(tmp_path: Path) -> None:
    """Requests and answers go the same way, of calls in this direction and in the other."""
    both = [{"src": "worker0", "dst": "worker1", "request": request} for request in (True, False)]
    found = findings(tmp_path, RPC, *(record("lost", **lost) for lost in both))
    (gap,) = [finding for finding in found if finding.code == "capture-gap"]
    assert gap.text == "The log says that messages are missing in it: worker0 → worker1."


def test_losses_of_a_worker_to_itself_have_a_direction(tmp_path: Path) -> None:
    own = message(dst="worker0", kind="PYTHON_RREF_FETCH_CALL", id=1)
    lost = {"src": "worker0", "dst": "worker0"}
    codes = [f.code for f in findings(tmp_path, own, LATER, record("lost", request=True, **lost))]
    assert "unanswered-request" in codes
    codes = [f.code for f in findings(tmp_path, own, record("lost", request=False, **lost))]
    assert "unanswered-request" not in codes


def test_nothing_is_said_to_be_missing_where_records_may_be(tmp_path: Path) -> None:
    codes = [found.code for found in findings(tmp_path, RPC, b"no record\n", LATER)]
    assert "unanswered-request" not in codes


TIMEOUT = {"src": "worker0", "dst": "worker1", "id": 1, "reason": "timeout", "time_ns": 500_000_001}


def test_a_call_that_timed_out(tmp_path: Path) -> None:
    said = record("failed", text="RPCErr:1:RPC ran for more than set timeout\nTraceback", **TIMEOUT)
    (found,) = findings(tmp_path, RPC, said)
    assert (found.code, found.severity, found.messages) == ("unanswered-request", "error", (0,))
    assert found.text.startswith("worker1 did not answer 1 request of worker0 in time (")
    assert found.text.endswith(
        "worker0 timed out 500 ms after it (RPCErr:1:RPC ran for more than set timeout)."
    )
    # what may be lost elsewhere does not make it less sure
    assert "timed out" in findings(tmp_path, RPC, b"no record\n", said)[0].text


def test_a_call_that_lost_its_connection(tmp_path: Path) -> None:
    said = record("failed", **TIMEOUT | {"reason": "connection", "text": "eof"})
    assert "the connection broke 500 ms after it (eof)" in findings(tmp_path, RPC, said)[0].text
    # who closed it is the better answer
    end = record("closed", src="worker0", dst="worker1", by="dst", how="reset", time_ns=400_000_000)
    assert "it closed the connection first (eof)" in findings(tmp_path, RPC, end, said)[0].text


def test_a_failed_call_whose_request_is_not_there(tmp_path: Path) -> None:
    said = record("failed", **TIMEOUT | {"id": 9, "type": "PYTHON_CALL"})
    answered = [CALL, message("worker1", "worker0", kind="CLEANUP_AUTOGRAD_CONTEXT_RESP", id=1)]
    (found,) = findings(tmp_path, *answered, said)
    assert (found.messages, found.workers) == ((), ("worker0", "worker1"))
    assert "to 1 request that the log does not hold (PYTHON_CALL): a timeout" in found.text


def test_clean_up_is_no_error(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, CALL, record("failed", **TIMEOUT))
    assert found.severity == "info"


def test_attempts_to_connect_that_were_refused() -> None:
    """Worker0, which has the store, comes 2.3 s after the others, who try again and again."""
    with Decoding([str(capture_of("costs/first_late"))]) as decoding:
        assert list(decoding.records())
        refused, workers = decoding.wire_facts.refused, decoding.session.workers
    arrivals = [worker.arrival for worker in workers]
    assert len(refused) > 1
    assert {store for store, _ in refused} == {arrival.store for arrival in arrivals if arrival}
    assert max(at for _, at in refused) < min(arrival.time_ns for arrival in arrivals if arrival)
