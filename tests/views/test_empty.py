"""Why there is nothing to see: each reason has its own words and a remedy."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from rpcinspect.rpc.command import RRefUserDelete
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.session.model import CaptureInfo, Finding, Session
from rpcinspect.views.empty import CAPTURE_RIGHT, empty_line, why_empty
from tests.session.records import Talk, pipe
from tests.views.opened import CAPTURES, opened

HIDDEN = Finding(
    code="invisible-transport",
    severity="warning",
    text="It went through shared memory.",
    remedy="Turn it off.",
)


@cache
def some_capture() -> CaptureInfo:
    with opened(CAPTURES / "basic_chain.pcap") as capture:
        return capture.session.captures[0]


def session(*, packets: int = 9, pipes: int = 0, store: int = 0, skipped: int = 0) -> Session:
    """One without messages, of a capture that holds this."""
    info = replace(some_capture(), packets=packets)
    talk = Talk(*[pipe(n) for n in range(pipes)] or [pipe()])
    found = talk.finish()
    totals = replace(found.totals, store_bytes=store, skipped_bytes=skipped)
    return replace(found, pipes=found.pipes if pipes else (), captures=(info,), findings=(), totals=totals)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"packets": 0}, "the capture holds no packets"),
        ({"packets": 0, "skipped": 5}, "the capture holds no packets"),
        ({"pipes": 1, "store": 5}, "no message was sent or captured"),
        ({"store": 5, "skipped": 5}, "the workers met at the TCPStore"),
        ({"skipped": 1}, "payload (1 byte) is neither"),
        ({"skipped": 12_300_000}, "payload (12.3 MB) is neither"),
        ({}, "the capture holds no TCP payload"),
    ],
)
def test_every_reason(what: dict[str, int], said: str) -> None:
    found = session(**what)
    told = why_empty(found)
    assert told is not None
    assert told.startswith("No RPC messages: ")
    assert said in told
    assert "\n" not in told
    assert told.endswith(CAPTURE_RIGHT) or "pipes" in what
    assert empty_line(found) == told


def test_nothing_is_explained_where_there_are_messages() -> None:
    talk = Talk()
    one = GloballyUniqueId(0, 1)
    talk.say(RRefUserDelete(one, one))
    found = talk.finish()
    assert why_empty(found) is None
    assert empty_line(found) is None


def test_findings_that_explain_it_are_not_repeated_but_quoted() -> None:
    found = replace(session(pipes=1), findings=(HIDDEN,))
    assert why_empty(found) is None
    assert empty_line(found) == "No RPC messages: It went through shared memory. Turn it off."
    found = replace(found, findings=(HIDDEN, replace(HIDDEN, text="And so did that.", remedy=None)))
    assert empty_line(found) == (
        "No RPC messages: It went through shared memory. Turn it off. And so did that."
    )


def test_other_findings_explain_nothing() -> None:
    found = replace(session(), findings=(replace(HIDDEN, code="unsafe-pickle"),))
    assert why_empty(found) is not None
