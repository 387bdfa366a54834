"""Scopes of exports, and the filters that pick the same messages."""

from __future__ import annotations

import random

import pytest

from rpcinspect.browse.export_scopes import ExportScope, index_filter, part_of_scope, scopes_of
from rpcinspect.browse.filter_run import FilterRun
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter, Selection
from rpcinspect.pipeline import Decoding, Options
from tests.browsing import read_whole
from tests.places import CAPTURES


def picked(reading: GrowingRun, text: str) -> list[int]:
    """What a filter of messages picks."""
    run = reading.run
    assert run is not None
    selection = Selection(Filter(parse(text), text), reading.decoding.bytes_beside())
    for record in reading.records(0, reading.count):
        selection.feed(record)
    rows = selection.finish(run.session).rows
    return sorted(reading.number(row) for row, one in enumerate(rows) if one)


def matching(reading: GrowingRun, text: str, *, of_calls: bool) -> FilterRun:
    found = FilterRun(reading, Filter(parse(text), text), of_calls=of_calls)
    found.start()
    found._thread.join(60)
    assert found.shown is not None, found.why
    return found


def test_a_filter_by_numbers_picks_them() -> None:
    reading = read_whole(CAPTURES / "ps_race.pcap.gz")
    choose = random.Random(20)
    try:
        for size in (1, 2, 3, 10, 60, 118):
            numbers = sorted(choose.sample(range(118), size))
            text = index_filter(numbers)
            assert text is not None
            assert picked(reading, text) == numbers
    finally:
        reading.close()


def test_too_many_numbers_have_no_filter() -> None:
    assert index_filter(range(0, 100_000, 2)) is None
    assert index_filter(range(100_000)) == "index >= 0 and index <= 99999"


def test_numbers_in_the_order_of_completion_are_no_filter_for_a_command() -> None:
    """A command reads the file in the order of time: its message 8 is another."""
    capture = str(CAPTURES / "basic_chain.pcap")
    reading = GrowingRun(Decoding([capture], Options(by_completion=True)))
    try:
        reading.start()
        reading.wait(60)
        assert part_of_scope(ExportScope("message 8", numbers=(8,)), reading).text is None
        by_sender = matching(reading, "src == worker1", of_calls=False)
        assert part_of_scope(ExportScope("", matching=by_sender), reading).text == "src == worker1"
        for of_calls in (True, False):
            by_number = matching(reading, "src == worker1 and index > 3", of_calls=of_calls)
            part = part_of_scope(ExportScope("", matching=by_number), reading)
            assert part.text is None
            assert part.shown is not None
            assert part.shown.count
    finally:
        reading.close()


def test_what_may_be_exported() -> None:
    reading = read_whole(CAPTURES / "basic_chain.pcap")
    try:
        row = reading.row_of(13)
        assert row is not None
        found = matching(reading, "src == worker1", of_calls=False)
        labels = [one.label for one in scopes_of(reading, row, [0, row], found)]
        assert labels[0] == "message 13"
        assert labels[1] == "what is marked: 2 messages"
        assert labels[2].startswith("what the filter shows: ")
        assert labels[2].endswith("messages that match src == worker1")
        assert labels[3:] == ["all 24 messages"]
        assert [one.label for one in scopes_of(reading, None, [], None)] == ["all 24 messages"]
        nothing = matching(reading, "src == nobody", of_calls=False)
        assert len(scopes_of(reading, None, [], nothing)) == 1
    finally:
        reading.close()


@pytest.mark.parametrize("text", ["src == worker1", "latency > 1ms", 'arg ~ "tensor" and value ~ "tensor"'])
@pytest.mark.parametrize("of_calls", [True, False])
def test_the_filter_of_a_scope_picks_what_is_shown(text: str, of_calls: bool) -> None:
    reading = read_whole(CAPTURES / "basic_chain.pcap")
    try:
        found = matching(reading, text, of_calls=of_calls)
        part = part_of_scope(ExportScope("", matching=found), reading)
        assert part.shown is not None
        assert part.text is not None
        shown = sorted(reading.number(row) for row, one in enumerate(part.shown.rows) if one)
        assert picked(reading, part.text) == shown
        assert found.shown is not None
        assert part.shown.rows == found.shown.rows
    finally:
        reading.close()
