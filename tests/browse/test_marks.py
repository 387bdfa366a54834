"""Marks: they stay at their messages, whatever numbers these have and whatever is read beside them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.mark_list import marked_numbers
from rpcinspect.browse.marks import Marks
from rpcinspect.pipeline import Decoding
from tests.logs import convert
from tests.places import CAPTURES

CHAIN = CAPTURES / "basic_chain.pcap"
DETACH = CAPTURES / "param_detach.pcap"


@contextmanager
def read(*paths: Path) -> Iterator[tuple[GrowingRun, Marks]]:
    """Captures as one run, read to the end, and the marks beside them."""
    names = [str(path) for path in paths]
    reading = GrowingRun(Decoding(names))
    try:
        reading.start()
        reading.wait(60)
        assert reading.state == "done", reading.why
        marks = Marks.beside(names)
        marks.find(reading)
        yield reading, marks
    finally:
        reading.close()


def note(reading: GrowingRun, marks: Marks, number: int, text: str) -> None:
    row = reading.row_of(number)
    assert row is not None
    marks.note(reading.record(row), text)


def notes(reading: GrowingRun, marks: Marks) -> dict[int, str]:
    """By number."""
    return {reading.number(row): text for row, text in marks.items()}


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    return Path(shutil.copy(CHAIN, tmp_path / "chain.pcap"))


@pytest.fixture
def detach(tmp_path: Path) -> Path:
    return Path(shutil.copy(DETACH, tmp_path / "detach.pcap"))


def test_marks_and_notes_are_there_again(chain: Path) -> None:
    with read(chain) as (reading, marks):
        for number in range(reading.count):
            note(reading, marks, number, f"this is {number}")
        marks.toggle(reading.record(3))
        gone = reading.number(3)
    with read(chain) as (reading, marks):
        expected = {number: f"this is {number}" for number in range(24) if number != gone}
        assert notes(reading, marks) == expected
        assert marked_numbers(reading, marks) == sorted(expected)
        assert marks.news == []


def test_a_log_has_places_too(tmp_path: Path) -> None:
    log = tmp_path / "run.rpclog"
    log.write_bytes(convert(CHAIN))
    with read(log) as (reading, marks):
        note(reading, marks, 5, "five")
    with read(log) as (reading, marks):
        assert notes(reading, marks) == {5: "five"}


def test_a_mark_that_is_set_before_the_end_stays_at_its_message(chain: Path) -> None:
    """Messages complete in another order than they begin: until the end a number is not known."""
    with read(chain) as (reading, marks):
        order = [reading.number(row) for row in range(24)]
        assert order != list(range(24))
        row = next(row for row, number in enumerate(order) if row != number)
        early = Marks.beside([str(chain)])
        run, reading.run = reading.run, None  # as it is before the end
        early.note(reading.record(row), "early")
        assert notes(reading, early) == {row: "early"}
        reading.run = run
        assert notes(reading, early) == {order[row]: "early"}
    with read(chain) as (reading, marks):
        assert notes(reading, marks) == {order[row]: "early"}


def test_notes_come_to_messages_as_these_come(chain: Path) -> None:
    with read(chain) as (reading, marks):
        marks.toggle(reading.record(2))
        marks.toggle(reading.record(20))
        again = Marks.beside([str(chain)])
        run, reading.run = reading.run, None
        for reading.count, found in ((1, set()), (5, {2}), (20, {2}), (24, {2, 20})):
            again.find(reading)
            assert {*again} == found
        reading.run = run


def test_captures_that_are_read_together_keep_their_own_notes(chain: Path, detach: Path) -> None:
    with read(chain) as (reading, marks):
        note(reading, marks, 13, "of the chain")
        told = reading.record(reading.row_of(13) or 0).rpc.message
    with read(detach, chain) as (reading, marks):
        (row,) = marks
        assert marks[row] == "of the chain"
        assert reading.record(row).rpc.message.payload == told.payload
        other = next(one for one in reading.records(0, reading.count) if one.location.capture == 0)
        marks.note(other, "of the other")
        count = other.rpc.message.id
    with read(detach) as (reading, marks):
        (row,) = marks
        assert (marks[row], reading.record(row).rpc.message.id) == ("of the other", count)


def test_two_browsers_see_each_others_marks_with_the_next_of_their_own(chain: Path) -> None:
    with read(chain) as (reading, one):
        other = Marks.beside([str(chain)])
        note(reading, one, 6, "of one")
        note(reading, other, 8, "of the other")
        other.find(reading)
        assert notes(reading, other) == {6: "of one", 8: "of the other"}
        other.toggle(reading.record(reading.row_of(6) or 0))
        note(reading, one, 10, "")
        one.find(reading)
        assert notes(reading, one) == {8: "of the other", 10: ""}


def test_another_version_of_the_capture_is_told(chain: Path) -> None:
    with read(chain) as (reading, marks):
        note(reading, marks, 6, "six")
        note(reading, marks, 13, "thirteen")
    chain.write_bytes(CHAIN.read_bytes()[:-1])
    with read(chain) as (reading, marks):
        assert notes(reading, marks) == {6: "six", 13: "thirteen"}
        (told,) = marks.news
        assert "chain.pcap has changed" in told
    chain.write_bytes(DETACH.read_bytes())
    with read(chain) as (reading, marks):
        assert notes(reading, marks) == {}
        (told,) = marks.news
        assert "2 of 2 notes" in told
        note(reading, marks, 2, "of this one")
    chain.write_bytes(CHAIN.read_bytes())
    with read(chain) as (reading, marks):  # what could not be placed was kept
        assert notes(reading, marks) == {6: "six", 13: "thirteen"}


def test_what_is_no_file_has_marks_in_memory_and_tells_it_once(chain: Path) -> None:
    with read(chain) as (reading, _):
        marks = Marks.beside(["-"])
        note(reading, marks, 6, "six")
        note(reading, marks, 8, "eight")
        assert notes(reading, marks) == {6: "six", 8: "eight"}
        (told,) = marks.news
        assert "until the end of this program" in told
        marks.news.clear()
        note(reading, marks, 10, "ten")
        assert marks.news == []
