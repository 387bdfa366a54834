"""Whom an error of a connection is about: by jobs whose workers died, and made-up ones."""

from __future__ import annotations

from typing import Any

import pytest

from rpcinspect.checks.wire_facts import ConnectionEnd, WireFacts
from rpcinspect.rpc.command import ExceptionResponse
from rpcinspect.session.model import Finding
from rpcinspect.tcp.refusals import Refusal
from tests.checks.talks import findings, named, of_path, remote
from tests.places import recorded
from tests.replayer.talks import Workers

SECOND = 1_000_000_000
EOF = "EOF: end of file (this error originated at tensorpipe/transport/uv/connection_impl.cc:132)"


def error_text(node: int, cause: str) -> str:
    return f"On WorkerInfo(id={node}, name=w{node}):\nRuntimeError('{cause}')\nTraceback …"


def end(workers: Workers, caller: int, callee: int, at: int, *, by_client: bool = False) -> ConnectionEnd:
    flow = str(workers.pipes[caller * 4 + callee].flow)
    return ConnectionEnd(
        flow=flow, begin_ns=0, last_ns=1 << 62, by_client=by_client, how="closed", time_ns=at
    )


def told(workers: Workers, *ends: ConnectionEnd, **facts: Any) -> list[Finding]:
    found = findings(workers, WireFacts(ends=ends, **facts), *named(4), until=99 * SECOND)
    return [finding for finding in found if finding.code == "error-response"]


def relayed(cause: str = EOF) -> Workers:
    """w0 calls w1, which calls w2, which gives no answer; w1 answers that it failed."""
    workers = Workers(4)
    workers.call(
        0, 1, 10 * SECOND, 20 * SECOND, "app.hop", remote(error_text(1, cause), b"builtins\nRuntimeError")
    )
    workers.call(1, 2, 11 * SECOND, None, "app.die")
    return workers


def test_the_worker_that_died_in_a_nested_call() -> None:
    """By its truth: worker2 was killed, worker1's hop got an EOF."""
    (finding,) = [
        f for f in of_path(str(recorded("reports/findings/errs_die.pcap")))[1] if f.code == "error-response"
    ]
    assert finding.workers == ("worker2", "worker1", "worker0")
    assert finding.text.startswith("worker2 closed its connection to worker1 first")
    assert "worker1 failed in errs.hop with RuntimeError('EOF: end of file" in finding.text
    assert finding.messages == (9, 10)
    assert finding.remedy is not None
    assert finding.remedy.endswith("rpcinspect decode FILE --message 9")


def test_a_worker_that_was_killed_with_a_call_open() -> None:
    found = of_path(str(recorded("logs/killed.pcap")))[1]
    (finding,) = [f for f in found if f.code == "error-response" and "EOF" in f.text]
    assert finding.workers == ("worker1", "worker2", "worker0")


def test_who_closed_first_and_who_only_followed() -> None:
    workers = relayed()
    workers.call(2, 3, 12 * SECOND, None, "app.deep")
    first = end(workers, 2, 3, 15 * SECOND)
    (finding,) = told(workers, end(workers, 1, 2, 16 * SECOND), first)
    assert finding.workers[0] == "w3"
    assert finding.text.startswith("w3 closed its connection to w2 first")
    (finding,) = told(workers, end(workers, 1, 2, 14 * SECOND), first)
    assert finding.workers[0] == "w2"


def test_a_connection_whose_end_was_not_captured() -> None:
    (finding,) = told(relayed())
    assert finding.text.startswith("w2 was lost to w1 with a request open (#1): w1 failed in app.hop")
    workers = relayed()
    workers.call(1, 3, 12 * SECOND, None, "app.other")
    (finding,) = told(workers)
    assert finding.text.startswith("w1 lost a connection in app.hop, and the capture does not tell to whom: ")


def test_a_worker_that_closed_for_itself_accuses_nobody() -> None:
    workers = relayed()
    workers.call(1, 3, 12 * SECOND, None, "app.other")
    (finding,) = told(workers, end(workers, 1, 2, 15 * SECOND, by_client=True))
    assert "does not tell to whom" in finding.text


@pytest.mark.parametrize(
    "cause", ["Ran out of input: EOF", "[Errno 111] Connection refused", "timed out", "boom"]
)
def test_what_user_code_raises_of_its_own(cause: str) -> None:
    """Of files, of other servers: w2 is not to blame, though it has a request open."""
    (finding,) = told(relayed(cause))
    assert finding.text.startswith(f"w1 failed first in app.hop: RuntimeError('{cause}')")


LATE = "RPCErr:1:RPC ran for more than set timeout (5000 ms) and will now be marked with an error"


def test_who_was_not_in_time() -> None:
    workers = relayed(LATE)
    workers.call(1, 3, 19 * SECOND, None, "app.just_sent")
    (finding,) = told(workers)
    assert finding.text.startswith("w2 did not answer w1 in time (#1): w1 failed in app.hop")
    assert finding.workers == ("w2", "w1", "w0")


def test_an_answer_that_came_too_late() -> None:
    """It was there before w1 told of the timeout, which may be that of another request."""
    workers = Workers(4)
    answer = remote(error_text(1, LATE), b"builtins\nRuntimeError")
    workers.call(0, 1, 10 * SECOND, 20 * SECOND, "app.hop", answer)
    workers.call(1, 2, 11 * SECOND, 18 * SECOND, "app.slow")
    (finding,) = told(workers)
    assert finding.text.startswith("w2 did not answer w1 in time (#1): w1 failed in app.hop")
    workers.call(1, 3, 12 * SECOND, None, "app.other")
    (finding,) = told(workers)
    assert finding.text.startswith(
        "w1 got no answer in time in app.hop, and the capture does not tell of whom"
    )


def test_who_took_no_connection() -> None:
    refused = "ECONNREFUSED: connection refused (this error originated at tensorpipe/transport/uv/uv.h:297)"
    workers = Workers(4)
    answer = ExceptionResponse(f"Error on Node 1: {refused}".encode())
    workers.call(0, 1, 10 * SECOND, 20 * SECOND, "app.hop", answer)
    no = Refusal(
        host="10.0.0.1",
        server="10.0.1.3:5000",
        count=1,
        first_ns=15 * SECOND,
        last_ns=15 * SECOND,
        silent=False,
    )
    (finding,) = told(workers, refusals=(no,))
    assert finding.text.startswith("w3 refused a connection from w1: w1 failed in app.hop with ECONNREFUSED")
    (finding,) = told(workers)
    assert "does not tell to whom" in finding.text
