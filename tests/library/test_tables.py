"""Streams of record batches: the rows of the tables in memory, in small pieces, with the capture of each."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import rpcinspect as ri
from rpcinspect.capture.reader import Reading
from rpcinspect.limits import Unpacking
from rpcinspect.pipeline import Options
from tests.places import CAPTURES

pa = pytest.importorskip("pyarrow")

RELAY = CAPTURES / "rref_relay.pcap.gz"


def rows(path: Path, table: str, *asked: Any, **how: Any) -> list[dict[str, Any]]:
    return [row for batch in ri.record_batches(path, table, *asked, **how) for row in batch.to_pylist()]


@pytest.mark.parametrize("table", ["messages", "tensors", "calls", "contexts", "rrefs", "captures"])
def test_rows_are_those_of_the_table_in_memory_with_their_capture(table: str) -> None:
    def key(row: dict[str, Any]) -> str:
        return str(sorted(row.items()))

    with ri.open(RELAY) as run:
        expected = [{"capture": str(RELAY), **row} for row in run.to_arrow(table).to_pylist()]
    assert expected
    assert sorted(rows(RELAY, table), key=key) == sorted(expected, key=key)


def test_batches_are_small_and_have_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.export.parquet.batches.BATCH_ROWS", 10)
    batches = list(ri.record_batches(RELAY))
    assert [batch.num_rows for batch in batches[:-1]] == [10] * 9
    assert all(batch.schema == ri.table_schema("messages") for batch in batches)


def test_only_columns_that_are_asked_for() -> None:
    found = rows(RELAY, "calls", "latency > 2ms", columns=("latency_ns", "capture"))
    assert found
    assert all(row.keys() == {"capture", "latency_ns"} and row["latency_ns"] > 2_000_000 for row in found)
    alone = list(ri.record_batches(RELAY, "messages", columns=["capture"]))
    assert sum(batch.num_rows for batch in alone) == 94


def test_a_filter_is_asked_of_request_and_answer_of_a_call_together() -> None:
    found = rows(RELAY, "calls", 'value ~ "tensor" and type == PYTHON_CALL', columns=["result"])
    assert found
    assert all("tensor" in row["result"] for row in found)


def test_what_cannot_be_read_is_a_row_with_the_reason(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no capture")
    (row,) = rows(text, "captures", unreadable=True)
    assert row["capture"] == row["path"] == str(text)
    assert "not a pcap" in row["problem"]
    assert rows(text, "calls", unreadable=True) == []
    with pytest.raises(ri.CaptureError, match="not a pcap"):
        rows(text, "captures")
    options = Options(reading=Reading(unpacking=Unpacking(bytes=10_000)))
    (row,) = rows(RELAY, "captures", options=options)
    assert 0 < row["packets"] < 1000
    assert "unpack" in row["problem"]


def test_wrong_questions_are_refused_before_anything_is_read() -> None:
    for asked, error in (
        (("nothing",), ri.OutputError),
        (("calls", "latency >"), ri.FilterError),
    ):
        with pytest.raises(error):
            ri.record_batches("not there", *asked)
    with pytest.raises(ri.OutputError, match="no column salary"):
        ri.record_batches("not there", "calls", columns=["salary"])


def test_a_capture_that_changes_between_the_passes(tmp_path: Path) -> None:
    path = tmp_path / "run.pcap.gz"
    shutil.copy(RELAY, path)
    batches = ri.record_batches(path, "messages")
    shutil.copy(CAPTURES / "ps_race.pcap.gz", path)
    assert sum(batch.num_rows for batch in batches) == 118  # nothing was read before the first batch
