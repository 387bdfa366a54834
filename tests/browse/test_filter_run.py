"""What a filter leaves in the lists is what `decode -f` and `decode --calls -f` print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.browse.filter_run import FilterRun
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.listing import Listing, RowList
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter
from tests.browsing import read_whole
from tests.cli.runner import CHAIN, decode
from tests.places import recorded

CAPTURES = (
    "basic_chain.pcap",
    "rref_relay.pcap",
    "bwd_boom.pcap",
    "logs/killed.pcap",
    "reports/concurrent/chain_ctx1.pcap",
    "reports/concurrent/forks_bad.rpclog",
)
FILTERS = (
    "src == worker1",
    "latency > 1ms",
    "not answers",
    "answers and latency > 1ms",
    "error",
    "finding",
    "housekeeping",
    'type ~ "BACKWARD" or tensor.numel > 10',
    "context_id == 0 and not rref_id",
    "index > 5 and index < 12",
)


def judged(reading: GrowingRun, text: str, of_calls: bool) -> FilterRun:
    """A filter that has looked at everything."""
    matching = FilterRun(reading, Filter(parse(text), text), of_calls=of_calls)
    matching.start()
    matching.wait(60)
    assert not matching.why
    return matching


@pytest.fixture(scope="module", params=CAPTURES)
def capture(request: pytest.FixtureRequest) -> Iterator[tuple[Path, GrowingRun]]:
    path = recorded(request.param)
    with read_whole(path) as reading:
        yield path, reading


@pytest.mark.parametrize("text", FILTERS)
def test_lists_are_those_of_decode(capture: tuple[Path, GrowingRun], text: str) -> None:
    path, reading = capture
    for kind, name, options in (("messages", "index", []), ("calls", "request", ["--calls"])):
        listed = Listing(kind, every=True, matching=judged(reading, text, of_calls=kind == "calls"))
        rows = RowList(reading, listed, {})
        printed = decode(path, *options, "--format", "jsonl", "-f", text).objects
        assert sorted(reading.number(rows.row(at)) for at in range(len(rows))) == [
            one[name] for one in printed if one["kind"] == kind[:-1]
        ]


def test_a_filter_of_calls_has_another_of_messages() -> None:
    with read_whole(CHAIN) as reading:
        calls = judged(reading, "src == worker1", of_calls=True)
        messages = calls.like(of_calls=False)
        messages.wait(60)
        assert messages.picked == 12  # worker1 sends half of the 24; its calls are requests and answers
        assert calls.picked == 10
        assert messages.like(of_calls=True) is calls
        assert messages.words == "12 match src == worker1"
