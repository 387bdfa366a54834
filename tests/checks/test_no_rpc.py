"""Captures without RPC: each reason has its own words, and is told once."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.checks.capture_faults import CAPTURE_RIGHT, NoRpc
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.rpc.command import RRefUserDelete
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.session.model import CaptureInfo, Finding, Session
from rpcinspect.store.visits import Visit
from rpcinspect.tcp.refusals import Refusal
from tests.checks.talks import NOTHING, of_capture
from tests.session.records import Talk, pipe

MET = WireFacts(visits=(Visit(client="10.0.0.1:1", server="10.0.0.2:2", root="", group=0, begin_ns=0),))


@cache
def some_capture() -> CaptureInfo:
    return of_capture("basic_chain")[0].captures[0]


def session(*, packets: int = 9, pipes: int = 0, store: int = 0, skipped: int = 0, **info: Any) -> Session:
    """One without messages, of a capture that holds this."""
    capture = replace(some_capture(), packets=packets, **info)
    found = Talk(*[pipe(n) for n in range(pipes)] or [pipe()]).finish()
    totals = replace(found.totals, store_bytes=store, skipped_bytes=skipped)
    return replace(found, pipes=found.pipes if pipes else (), captures=(capture,), totals=totals)


def told(found: Session, wire: WireFacts = NOTHING) -> list[Finding]:
    return list(NoRpc().finish(CaptureEvidence(found, wire)))


@pytest.mark.parametrize(
    ("what", "wire", "said"),
    [
        ({"packets": 0}, NOTHING, "the capture holds no packets"),
        ({"packets": 0, "skipped": 5}, NOTHING, "the capture holds no packets"),
        ({"pipes": 1, "store": 5}, MET, "no message was sent or captured"),
        ({"store": 5, "skipped": 5}, MET, "the workers met at the TCPStore"),
        ({"store": 5, "skipped": 5}, NOTHING, "no init_rpc traffic was captured there"),
        ({"skipped": 1}, NOTHING, "payload (1 byte) is neither"),
        ({"skipped": 12_300_000}, NOTHING, "payload (12.3 MB) is neither"),
        ({}, NOTHING, "the capture holds no TCP payload"),
    ],
)
def test_every_reason(what: dict[str, int], wire: WireFacts, said: str) -> None:
    (finding,) = told(session(**what), wire)
    assert (finding.code, finding.severity, finding.remedy) == ("no-rpc", "error", CAPTURE_RIGHT)
    assert finding.text.startswith("No RPC messages: ")
    assert said in finding.text
    assert "\n" not in finding.text


def test_a_log_is_not_captured() -> None:
    (finding,) = told(session(reader="log"))
    assert finding.text == "No RPC messages: the log holds none that is whole."
    assert finding.remedy is not None
    assert finding.remedy != CAPTURE_RIGHT


def test_nothing_is_explained_where_there_are_messages() -> None:
    talk = Talk()
    one = GloballyUniqueId(0, 1)
    talk.say(RRefUserDelete(one, one))
    assert told(talk.finish()) == []


def test_what_other_findings_tell_is_not_told_again() -> None:
    assert {f.code for f in of_capture("transport_matrix_default")[1]} == {"invisible-transport"}
    assert {f.code for f in of_capture("devmap_cpu_refused")[1]} == {"failed-init"}
    refused = Refusal(host="10.0.0.1", server="10.0.0.2:1", count=5, first_ns=0, last_ns=9, silent=False)
    assert told(session(), WireFacts(refusals=(refused,))) == []


def test_workers_that_look_for_the_store_elsewhere() -> None:
    """As where MASTER_PORT differs: one has the store, the other one is refused again and again."""
    refused = Refusal(host="10.0.0.1", server="10.0.0.2:3", count=7, first_ns=0, last_ns=9, silent=False)
    (finding,) = told(session(store=5), WireFacts(refusals=(refused,), stores=("10.0.0.2:2",)))
    assert "the store is at 10.0.0.2:2, and 7 connections to 10.0.0.2:3 were refused." in finding.text
    assert finding.remedy is not None
    assert "MASTER_PORT" in finding.remedy
    once = replace(refused, count=1)
    (finding,) = told(session(store=5), WireFacts(refusals=(once,), stores=("10.0.0.2:2",)))
    assert "refused" not in finding.text
