"""The dissector in tshark: fields, filters, links and packets, whatever was captured."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rpcinspect.export.wireshark.dissector import SCRIPT, TABLE, Written, ranges, write_dissector
from rpcinspect.export.wireshark.labels import MAX_TEXT
from rpcinspect.pipeline import Decoding
from tests.decoded import decode
from tests.places import content, recorded
from tests.tshark import fields, needs_tshark, tshark

NAMES = (
    *("number", "type", "request", "from", "to", "function", "call", "latency", "context", "error"),
    *("finding", "tensors", "housekeeping", "request_in", "answer_in", "parent_in", "last_packet"),
)


def export(folder: Path, *paths: Path) -> Written:
    """Writes the dissector for captures that are one session."""
    with Decoding([str(path) for path in paths]) as decoding:
        list(decoding.records())
        session = decoding.session
    with Decoding([str(path) for path in paths]) as again:
        return write_dissector(folder, session, again, again.records())


def dissected(folder: Path, path: Path, names: Sequence[str], *options: str) -> list[dict[str, str]]:
    """These fields of the packets that tshark prints, with the dissector; frame.number beside."""
    script = ("-X", f"lua_script:{folder / SCRIPT}")
    wanted = ["frame.number", *(f"torchrpc.{name}" for name in names)]
    return [dict(zip(("frame", *names), row, strict=True)) for row in fields(path, wanted, *script, *options)]


def as_tshark_has_it(message: dict[str, Any], messages: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The fields of a message that do not need the session's names of calls."""
    asked = messages[message["answers"]] if message["answers"] is not None else message
    latency = asked["latency_ns"]

    def packet(index: int | None) -> str:
        return "" if index is None else str(messages[index]["location"]["packet"])

    return {
        "frame": str(message["location"]["packet"]),
        "number": str(message["index"]),
        "type": message["type"],
        "request": str(int(message["request"])),
        "from": message["src"],
        "to": message["dst"],
        "function": asked["body"].get("function") or "",
        "call": asked["call"] or "",
        "latency": "" if latency is None else f"{latency // 10**9}.{latency % 10**9:09}",
        "tensors": str(len(message["tensors"])),
        "housekeeping": str(int(message["housekeeping"])),
        "request_in": packet(message["answers"]),
        "answer_in": packet(message["answered_by"]),
        "parent_in": packet(
            message["parents"][0] if message["parents"] and message["parent_certain"] else None
        ),
    }


@needs_tshark
@pytest.mark.parametrize("name", ["basic_chain.pcap", "bwd_boom.pcap"])
def test_fields_of_every_message(name: str, tmp_path: Path) -> None:
    path = recorded(name)
    done = export(tmp_path, path)
    messages = decode(path).messages
    assert done.messages == len(messages)
    rows = dissected(tmp_path, path, NAMES, "-Y", "torchrpc.number")
    by_number = {int(row["number"]): row for row in rows}
    assert len(rows) == len(messages)
    for message in messages:
        row, expected = by_number[message["index"]], as_tshark_has_it(message, messages)
        assert {name: row[name] for name in expected} == expected
        contexts = {message["body"].get("context_id"), *(e.get("context_id") for e in message["envelopes"])}
        packed = {f"{one >> 48}:{one & (1 << 48) - 1}" for one in contexts - {None}}
        assert (row["context"] in packed) if packed else (row["context"] == "")
        error = (message["body"].get("error") or {}).get("text")
        assert bool(row["error"]) is bool(error)
        assert int(row["last_packet"]) >= message["location"]["last_packet"]
    codes = {int(row["number"]): set(filter(None, row["finding"].split(","))) for row in rows}
    for finding in decode(path).of("finding"):
        assert all(finding["code"] in codes[index] for index in finding["messages"])


@needs_tshark
def test_filters_and_columns(tmp_path: Path) -> None:
    """What docs/wireshark.md tells people to type; the retransmission is one that tshark marks."""
    path = recorded("draws.pcap")
    export(tmp_path, path)
    messages = decode(path).messages
    slow = [m for m in messages if (m["latency_ns"] or 0) > 2_000_000]
    script = ("-X", f"lua_script:{tmp_path / SCRIPT}")
    text = "torchrpc.request == 1 && torchrpc.latency > 0.002"
    rows = dissected(tmp_path, path, ["number"], "-Y", text)
    assert [int(row["number"]) for row in rows] == [m["index"] for m in slow]
    assert 0 < len(rows) < len(messages)
    again = tshark(path, *script, "-Y", "tcp.analysis.retransmission && torchrpc.part", "-T", "fields", "-e",
                   "torchrpc.part")  # fmt: skip
    assert again == ["0"]
    (line,) = tshark(path, *script, "-Y", f"torchrpc.number == {slow[0]['index']}")
    assert "TorchRPC" in line
    assert f"#{slow[0]['index']} {slow[0]['type']} {slow[0]['src']} → {slow[0]['dst']}" in line


@needs_tshark
def test_each_capture_of_a_session_has_its_own(tmp_path: Path) -> None:
    paths = [recorded("basic_chain.pcap"), recorded("draws.pcap")]
    export(tmp_path, *paths)
    messages = decode(*paths).messages
    for number, path in enumerate(paths):
        rows = dissected(tmp_path, path, ["number"], "-Y", "torchrpc.number")
        expected = {
            (m["location"]["packet"], m["index"]) for m in messages if m["location"]["capture"] == number
        }
        assert {(int(row["frame"]), int(row["number"])) for row in rows} == expected


@needs_tshark
def test_another_capture_is_told(tmp_path: Path) -> None:
    """The same packets at other times, and packets that were taken out in front."""
    path = recorded("basic_chain.pcap")
    export(tmp_path / "ws", path)
    data, later = content("basic_chain.pcap"), bytearray(content("basic_chain.pcap"))
    at = 24
    while at < len(later):
        seconds, _, size = struct.unpack_from("<III", later, at)
        struct.pack_into("<I", later, at, seconds + 5)
        at += 16 + size
    less = data[:24] + data[24 + 16 + struct.unpack_from("<I", data, 32)[0] :]
    for number, other in enumerate((bytes(later), less)):
        place = tmp_path / f"{number}.pcap"
        place.write_bytes(other)
        rows = dissected(tmp_path / "ws", place, ["number", "part", "other_capture"], "-Y", "torchrpc")
        assert rows
        assert all(row["number"] == row["part"] == "" for row in rows)
        assert all(row["other_capture"] for row in rows)


HOSTILE = {b"worker1": b'\t"\n\\]]\x1b', b"worker0": "\u202e\r'%s".encode(), b"scale": b"]]--\0"}
"""Names → others of the same length: tabs and line breaks, which part the table, and what Lua could read."""


@needs_tshark
def test_hostile_names_are_text(tmp_path: Path) -> None:
    data = content("basic_chain.pcap")
    for name, other in HOSTILE.items():
        assert len(name) == len(other)
        data = data.replace(name, other)
    path = tmp_path / "hostile.pcap"
    path.write_bytes(data)
    done = export(tmp_path / "ws", path)
    assert done.messages == 24
    lines = (tmp_path / "ws" / TABLE).read_text(encoding="utf-8").split("\n")
    assert all(len(part) <= 5 * MAX_TEXT for line in lines for part in line.split("\t"))
    assert {line.count("\t") for line in lines if line.startswith("M")} == {16}
    rows = dissected(tmp_path / "ws", path, ["number", "from", "function"], "-Y", "torchrpc.number")
    assert len(rows) == 24
    assert {row["from"] for row in rows} == {'\\t"\\n\\]]\\x1b', "\\u202e\\r'%s"}
    assert "basic_chain.]]--\\x00" in {row["function"] for row in rows}


@pytest.mark.parametrize(
    ("packets", "text"), [([7], "7"), ([3, 4, 5, 9], "3-5,9"), ([1, 3, 5, 6], "1,3,5-6")]
)
def test_ranges(packets: list[int], text: str) -> None:
    assert ranges(np.array(packets)) == text
