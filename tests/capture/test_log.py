"""Logs cut into records: cut anywhere, damaged anywhere, hostile, compressed, as text."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpcinspect.capture import CaptureReader
from rpcinspect.capture.log import MAX_HEADER, MAX_LINE, MAX_PROBLEMS
from rpcinspect.capture.source import ASIDE, WINDOW
from rpcinspect.errors import CaptureError
from tests.logs import blocks_of, log_of, message
from tests.thorough import examples

RECORDS = (
    message(id=1, payload=b"a\nb", storages=(b"\n" * 5, b"")),
    b'{"rpc":"worker","name":"worker0","id":0}\n',
    message(id=2, storages=(b'{"rpc', b"x")),
    b'{"rpc":"later","bytes":4}\n1234\n',
    message(id=3, payload=b'\n{"rpclog"\n'),
)
BEGINS = [len(log_of(*RECORDS[:n])) for n in range(len(RECORDS) + 1)]
WHOLE = log_of(*RECORDS)
IDS = [1, 0, 2, None, 3]


def write(folder: Path, data: bytes) -> Path:
    path = folder / "a.rpclog"
    path.write_bytes(data)
    return path


def test_records_and_where_their_bytes_lie(tmp_path: Path) -> None:
    records, problems, damaged = blocks_of(write(tmp_path, WHOLE))
    assert (problems, damaged) == ([], False)
    assert [record.header.get("id") for record in records] == IDS
    assert [record.offset for record in records] == BEGINS[:-1]
    assert [record.number for record in records] == [1, 2, 3, 4, 5]
    assert [record.payload for record in records] == [b"a\nb", b"", b"", b"", b'\n{"rpclog"\n']
    assert WHOLE[records[0].rest :][:6] == b"\n\n\n\n\n\n"
    assert WHOLE[records[2].rest :][:6] == b'{"rpcx'


def test_a_log_cut_at_any_byte_loses_the_record_that_was_cut(tmp_path: Path) -> None:
    for length in range(BEGINS[0], len(WHOLE)):
        records, problems, damaged = blocks_of(write(tmp_path, WHOLE[:length]))
        # the last newline of a record with bytes is no part of what it says
        whole = sum(end <= length + (RECORDS[n][-2:] != b"}\n") for n, end in enumerate(BEGINS[1:]))
        assert [record.header.get("id") for record in records] == IDS[:whole], length
        tail = WHOLE[BEGINS[whole] : length]
        if b'\n{"rpc' not in tail:  # else what was cut looks like a header, and may have been one
            assert not damaged
            assert len(problems) == (len(tail) > 0), (length, problems)


def test_a_log_without_a_whole_first_line_is_none(tmp_path: Path) -> None:
    for length in range(len(b'{"rpclog":'), BEGINS[0]):
        with pytest.raises(CaptureError, match="cut within the first line"):
            CaptureReader(str(write(tmp_path, WHOLE[:length])))


@given(at=st.integers(BEGINS[0], len(WHOLE) - 1), new=st.integers(0, 255), size=st.integers(0, 9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150))
def test_damage_costs_what_it_touches(tmp_path: Path, at: int, new: int, size: int) -> None:
    """A byte changed, and some after it gone: records before it stay, nothing is made up."""
    data = WHOLE[:at] + bytes([new]) + WHOLE[at + 1 + size :]
    records, problems, _ = blocks_of(write(tmp_path, data))
    before = sum(end <= at for end in BEGINS[1:])
    assert [r.header.get("id") for r in records[:before]] == IDS[:before]
    assert len(records) <= len(RECORDS) + 1
    if len(records) < len(RECORDS):
        assert problems or new in (ord(" "), ord("\n")) or size


def test_a_damaged_record_is_passed_over(tmp_path: Path) -> None:
    for header in HOSTILE:
        data = log_of(RECORDS[0], header + b"\n", RECORDS[4])
        records, problems, damaged = blocks_of(write(tmp_path, data))
        assert [record.header["id"] for record in records] == [1, 3], header[:80]
        assert damaged
        (problem,) = problems
        assert f"{len(header) + 1:,} bytes of the log hold no record" in problem, header[:80]


def test_a_payload_is_no_longer_than_its_record(tmp_path: Path) -> None:
    longer = b'{"rpc":"message","bytes":1,"payload":2}\nx\n'
    records, problems, damaged = blocks_of(write(tmp_path, log_of(RECORDS[0], longer, RECORDS[4])))
    assert [record.header["id"] for record in records] == [1, 3]
    assert ("it announces 2 of 1 bytes" in problems[0], damaged) == (True, True)


HOSTILE = [
    b"{",
    b"no header",
    b"{}",
    b'{"rpc":1}',
    b'{"rpc":"message"',
    b'{"rpc":"message","bytes":-1}',
    b'{"rpc":"message","bytes":true}',
    b'{"rpc":"message","bytes":"1"}',
    b'{"rpc":"message","bytes":1.0}',
    b'{"rpc":"message","bytes":NaN}',
    b'{"rpc":"message","bytes":Infinity}',
    b'{"rpc":"message","bytes":1e999}',
    b'{"rpc":"message","bytes":%d}' % 2**60,
    b'{"rpc":"message","bytes":%d,"payload":%d}' % (2**60, 2**60),
    b'{"rpc":"message","bytes":%d}' % 2**64,
    b'{"rpc":"message","bytes":1%b}' % (b"0" * 5000),
    b'{"rpc":"message","bytes":1,"payload":2}',
    b'{"rpc":"message","time_ns":%d}' % 2**63,
    b'{"rpc":"message","time_ns":"now"}',
    b'{"rpc":"message","end_ns":[]}',
    b'{"rpc":"message","base64":7}',
    b'{"rpc":"message","bytes":1,"base64":"!"}',
    b'{"rpc":"message","bytes":4,"base64":"AAAA"}',
    b'{"rpc":"message","bytes":2,"base64":"AAAA"}',
    b'{"rpc":"\xff"}',
    b'{"rpc":' + b"[" * 100_000,
    b'{"rpc":"message","x":"' + b"y" * MAX_HEADER + b'"}',
    b'["rpc"]',
]


def test_a_line_without_end(tmp_path: Path) -> None:
    endless = b'{"rpc":"message","x":"' + b"y" * (MAX_LINE + WINDOW)
    records, problems, damaged = blocks_of(write(tmp_path, log_of(endless, b"\n", RECORDS[4])))
    assert [record.header["id"] for record in records] == [3]
    assert damaged
    assert "a line of more than" in problems[0]


def test_problems_are_bounded(tmp_path: Path) -> None:
    records, problems, _ = blocks_of(write(tmp_path, log_of(b'{"rpc"x\n' * 5000, RECORDS[0])))
    assert len(records) == 1
    assert len(problems) == MAX_PROBLEMS + 1


def test_records_larger_than_a_window(tmp_path: Path) -> None:
    large = bytes(range(256)) * (WINDOW // 128)
    records, problems, _ = blocks_of(
        write(tmp_path, log_of(message(id=1, storages=(large,)), message(id=2, payload=large), RECORDS[4]))
    )
    assert problems == []
    assert [record.header["id"] for record in records] == [1, 2, 3]
    assert records[1].payload == large


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    records, problems, _ = blocks_of(write(tmp_path, pack(WHOLE)))
    assert [record.header.get("id") for record in records] == IDS
    assert problems == []


def test_text(tmp_path: Path) -> None:
    said = {"rpc": "message", "time_ns": 5, "bytes": 6, "payload": 2}
    lines = [json.dumps(said | {"base64": base64.b64encode(b"ab\n\0cd").decode()}) for _ in range(2)]
    path = write(tmp_path, log_of("\n".join(lines).encode() + b"\n"))
    with CaptureReader(str(path)) as reader:
        (block,) = reader.blocks()
        first, second = block.records  # type: ignore[union-attr]
        assert first.payload == second.payload == b"ab"
        assert first.rest == ASIDE
        assert second.rest == ASIDE + 4
        assert reader.pread(second.rest, 4) == b"\n\0cd"
        assert (reader.reader, reader.format, reader.packets) == ("log", "rpclog", 2)
        assert (reader.first_time_ns, reader.last_time_ns) == (5, 5)


def test_a_long_line_of_text(tmp_path: Path) -> None:
    data = bytes(MAX_HEADER * 2)
    said = {"rpc": "message", "bytes": len(data), "payload": 7}
    line = json.dumps(said | {"base64": base64.b64encode(data).decode()}).encode()
    records, problems, _ = blocks_of(write(tmp_path, log_of(line, b"\n", RECORDS[0])))
    assert problems == []
    assert [record.payload for record in records] == [bytes(7), b"a\nb"]


def test_logs_can_be_appended_to_each_other(tmp_path: Path) -> None:
    records, problems, damaged = blocks_of(write(tmp_path, WHOLE + b"\n\n" + WHOLE))
    assert [record.header.get("id") for record in records] == IDS * 2
    assert not problems
    assert not damaged


def test_a_newer_version(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"rpclog":2}\n' + RECORDS[0])
    with pytest.raises(CaptureError, match=r"version 2 of the log format is newer than 1") as error:
        CaptureReader(str(path))
    assert "\n" not in str(error.value)
    records, problems, damaged = blocks_of(write(tmp_path, WHOLE + b'{"rpclog":2}\n' + RECORDS[0]))
    assert len(records) == len(RECORDS)
    assert damaged
    assert "the rest is not read" in problems[0]


@pytest.mark.parametrize("version", [b'"1"', b"0", b"true", b"1.0", b"null"])
def test_no_version(tmp_path: Path, version: bytes) -> None:
    with pytest.raises(CaptureError, match="has no version"):
        CaptureReader(str(write(tmp_path, b'{"rpclog":%b}\n' % version)))
