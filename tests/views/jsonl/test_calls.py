"""Rows of calls: what is kept of messages until all are known."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rpcinspect.filter.matches import Shown
from rpcinspect.views.jsonl.calls import CallRows, CallTexts, OfSession, call_json
from tests.truth import context_of, workload
from tests.views.opened import Opened, opened

NAMES = ["basic_chain.pcap", "ps_race.pcap.gz", "rref_relay.pcap.gz"]


@contextmanager
def of(name: str, shown: Shown | None = None) -> Iterator[tuple[Opened, OfSession]]:
    with opened(name) as capture, tempfile.TemporaryFile() as file:
        view = CallRows(file)
        view.feed(capture.records)
        yield capture, view.of(capture.session, shown)


@pytest.mark.parametrize("name", NAMES)
def test_each_request_has_a_row_in_the_order_of_time(name: str) -> None:
    with of(name) as (capture, calls):
        rows = [row for batch in calls.batches(calls.rows) for row in batch]
        requests = [i for i, record in enumerate(capture.messages) if record.tp.from_client]
    assert [row.request for row in rows] == requests
    assert [row.time_ns for row in rows] == sorted(row.time_ns for row in rows)
    assert calls.all_rows == len(rows)
    assert calls.all_calls == len(calls.calls) == sum(not row.housekeeping for row in rows)
    assert calls.orphans == 0
    messages = workload(name.partition(".")[0]).decoded.messages
    assert calls.hidden == sum(message["housekeeping"] for message in messages)
    for row in rows:
        message = messages[row.request]
        assert row.housekeeping == message["housekeeping"]
        assert row.answer == message["answered_by"]
        assert row.latency_ns == message["latency_ns"]
        assert [*row.parents] == message["parents"]
        assert row.asked["type"] == message["body"]["type"]
        if context_of(message) is not None:
            assert row.context_id == context_of(message)


@pytest.mark.parametrize("name", NAMES)
def test_messages_of_a_pattern_are_put_into_words_once_and_the_same(name: str) -> None:
    with opened(name) as capture:
        texts = CallTexts()
        together = [texts.of(record) for record in capture.records]
        alone = [CallTexts().of(record) for record in capture.records]
    assert together == alone


def test_answers_without_a_request_are_counted() -> None:
    with of("basic_chain.pcap") as (capture, calls):
        columns = capture.session.messages
        answer = next(row for row in range(len(columns)) if not columns.from_client[row])
        columns.partner[columns.partner[answer]] = -1
        columns.partner[answer] = -1
        again = OfSession(capture.session, calls._spool, None)
        rows = [call_json(row) for batch in again.batches(again.rows) for row in batch]
    assert again.orphans == 1
    assert sum(row["answer"] is None for row in rows) == 1


def test_a_request_whose_answer_matches_is_picked() -> None:
    with opened("basic_chain.pcap") as capture:
        picked = bytearray(len(capture.records))
        picked[int(capture.session.order[9])] = 1
    with of("basic_chain.pcap", Shown("index == 9", bytes(picked))) as (_, calls):
        assert [row.request for batch in calls.batches(calls.rows) for row in batch] == [8]
    assert (calls.all_calls, calls.hidden) == (6, 0)
