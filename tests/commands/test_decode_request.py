"""What a request to decode means, and the mistakes in it that need no capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.commands.decode_request import Request, mistake, mistake_in_filter
from rpcinspect.commands.filtering import read_filter


@pytest.mark.parametrize(
    ("request_", "live", "streams"),
    [
        (Request(files=("a.pcap",)), False, False),
        (Request(files=("a.pcap",), stream=True), True, True),
        (Request(files=("-",)), True, True),
        (Request(files=("-",), format="jsonl"), True, False),
        (Request(files=(), interface="lo"), True, True),
    ],
)
def test_what_is_shown_as_it_comes(request_: Request, live: bool, streams: bool) -> None:
    assert (request_.live, request_.streams) == (live, streams)


def test_mistakes() -> None:
    assert mistake(Request(files=("a.pcap",))) is None
    assert "no capture" in (mistake(Request(files=())) or "")
    assert "only once" in (mistake(Request(files=("-", "-"))) or "")
    assert "together" in (mistake(Request(files=("a",), stream=True, message=1)) or "")
    assert "both" in (mistake(Request(files=("a",), write=Path("b"), output=Path("b"))) or "")


def test_mistakes_in_filters() -> None:
    late, early = read_filter("finding"), read_filter("request")
    assert mistake_in_filter(Request(files=("a",), stream=True), None) is None
    assert mistake_in_filter(Request(files=("a",), stream=True), early) is None
    assert mistake_in_filter(Request(files=("a",)), late) is None
    assert "at the end" in (mistake_in_filter(Request(files=("-",)), late) or "")
    assert mistake_in_filter(Request(files=("-",), write=Path("b")), late) is None
    assert mistake_in_filter(Request(files=("-",), message=1), late) is None
