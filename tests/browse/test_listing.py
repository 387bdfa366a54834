"""Lists of messages and calls say what `decode` and `decode --calls` say, in their order."""

from __future__ import annotations

import re

import pytest

from rpcinspect.browse.goto import place_in_words
from rpcinspect.browse.list_app import find_text
from rpcinspect.browse.listing import Listing, RowList
from rpcinspect.browse.timeline import LANE, Timeline
from tests.browsing import read_whole
from tests.cli.runner import decode
from tests.places import recorded

CAPTURES = (
    "rref_relay.pcap",
    "bwd_boom.pcap",
    "reports/concurrent/chain_ctx1.pcap",
    "reports/concurrent/forks_bad.rpclog",
)


def table(*arguments: str) -> list[str]:
    """The lines of a table of messages that begin with a number."""
    return [
        line for line in decode(*arguments).out.splitlines() if re.match(r" *\d+ +[\d. ]*\d\.\d{6} ", line)
    ]


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("every", [False, True])
def test_messages(name: str, every: bool) -> None:
    path = recorded(name)
    with read_whole(path) as reading:
        rows = RowList(reading, Listing("messages", every), {})
        lines = [rows.line(at, 120).text.split() for at in range(len(rows))]
        texts = rows.texts(range(len(rows)))
    expected = [line.split() for line in table(str(path), *(["-a"] if every else []))]
    assert [line[:5] for line in lines] == [line[:5] for line in expected]
    for text, theirs in zip(texts, expected, strict=True):
        assert " ".join(text.split()) in " ".join(theirs)


@pytest.mark.parametrize("name", CAPTURES)
def test_calls_stand_below_the_one_that_caused_them(name: str) -> None:
    path = recorded(name)
    with read_whole(path) as reading:
        rows = RowList(reading, Listing("calls"), {})
        lines = [rows.line(at, 120).text for at in range(len(rows))]
    expected = table(str(path), "--calls")
    assert [int(line.split()[0]) for line in lines] == [int(line.split()[0]) for line in expected]
    for line, theirs in zip(lines, expected, strict=True):
        said = line[line.index("→") :].split()[2:]
        assert " ".join(said) in " ".join(theirs.split())  # which says in words, too, what may have caused it


def test_a_line_is_found_again_by_its_row_and_by_that_of_its_answer() -> None:
    with read_whole(recorded("rref_relay.pcap")) as reading:
        rows = RowList(reading, Listing("calls"), {})
        for at in range(len(rows)):
            row = rows.row(at)
            answer = reading.columns.partner[row]
            assert rows.place_of(row) == at
            assert answer < 0 or rows.place_of(answer) == at


def test_marks_stand_before_their_lines() -> None:
    with read_whole(recorded("rref_relay.pcap")) as reading:
        every = RowList(
            reading, Listing("messages", True), {reading.row_of(number) or 0: "" for number in (3, 5)}
        )
        assert [at for at in range(len(every)) if every.line(at, 80).mark] == [3, 5]


def test_find_goes_both_ways_and_round() -> None:
    with read_whole(recorded("basic_chain.pcap")) as reading:
        rows = RowList(reading, Listing("calls"), {})
        assert [find_text(rows, "GRADIENTS", at, 1) for at in range(6)] == [2, 2, 3, 4, 5, 2]
        assert find_text(rows, "gradients", 0, -1) == 5
        assert find_text(rows, "no such text", 0, 1) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("23", 23),
        ("24", None),
        ("0s", 0),
        ("99s", None),
        ("p1", None),
        ("p1:2", None),
        ("-1", None),
        ("", None),
    ],
)
def test_places_in_words(text: str, number: int | None) -> None:
    with read_whole(recorded("basic_chain.pcap")) as reading:
        row, why = place_in_words(text, reading)
        assert (None if row is None else reading.number(row)) == number
        assert row is not None or why


def test_arrows_of_a_timeline_lead_from_sender_to_receiver() -> None:
    with read_whole(recorded("rref_relay.pcap")) as reading:
        run = reading.run
        assert run is not None
        timeline = Timeline(reading, Listing("messages", True), {})
        lanes = list(timeline.lanes(200))
        for at in range(len(timeline)):
            row = timeline.row(at)
            drawn = timeline.line(at, 200).text[20:]
            ends = {drawn.index("●") // LANE, min(drawn.find(one) for one in "▶◀" if one in drawn) // LANE}
            assert ends == {lanes.index(run.session.source(row)), lanes.index(run.session.destination(row))}
            assert drawn.index("●") // LANE == lanes.index(run.session.source(row))


def test_a_narrow_timeline_keeps_the_busiest_workers() -> None:
    with read_whole(recorded("ps_race.pcap")) as reading:
        assert reading.run is not None
        timeline = Timeline(reading, Listing("messages", True), {})
        assert len(timeline.lanes(72)) == 2
        assert "more" in timeline.header(72)
        session, kept = reading.run.session, timeline.lanes(72)
        for at in range(len(timeline)):
            row, drawn = timeline.row(at), timeline.line(at, 72).text[20:]
            ends = session.source(row), session.destination(row)
            assert drawn.index("●") // LANE == (kept.index(ends[0]) if ends[0] in kept else 2)
            assert any(one in drawn[: 3 * LANE] for one in "▶◀") or not {*ends} & {*kept}
