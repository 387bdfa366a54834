"""One message in full; its byte ranges against tshark and against the file."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.rpc.message import from_payloads
from rpcinspect.views.text.detail import HEX_ROWS, detail, hexdump
from tests.places import content
from tests.views.opened import CAPTURES, Opened, opened

CHUNK = re.compile(r"bytes of (.+): (\d+)\.\.(\d+) of the stream")
PLACE = re.compile(r"  bytes: (\d+)\.\.(\d+) of (\S+)( \(gzip, unpacked\))?")


def told(capture: Opened, index: int, *, every_byte: bool = True) -> list[str]:
    parts = detail(
        capture.messages[index], capture.session, capture.bytes, rows=None if every_byte else HEX_ROWS
    )
    return "\n".join(part.plain for part in parts).split("\n")


def bytes_below(lines: list[str], start: int) -> bytes:
    """What the hex dump that begins at a line shows."""
    out = b""
    for line in lines[start:]:
        if not re.match(r"  [0-9a-f]{8}  ", line):
            break
        out += bytes.fromhex(line[12:59])
    return out


def followed(path: Path) -> dict[str, bytes]:
    """Each direction's bytes of every TCP stream, from tshark."""
    if shutil.which("tshark") is None:
        pytest.skip("there is no tshark")
    streams = subprocess.run(
        ["tshark", "-r", path, "-T", "fields", "-e", "tcp.stream"], capture_output=True, check=True, text=True
    ).stdout.split()
    follow = [f"follow,tcp,raw,{number}" for number in sorted(set(streams), key=int)]
    arguments = [word for item in follow for word in ("-z", item)]
    text = subprocess.run(
        ["tshark", "-q", "-r", path, *arguments], capture_output=True, check=True, text=True
    ).stdout
    out: dict[str, bytes] = {}
    for section in text.split("Node 0: ")[1:]:
        lines = section.splitlines()
        one, two = lines[0], lines[1].removeprefix("Node 1: ")
        for line in lines[2:]:
            if re.fullmatch(r"\t?[0-9a-f]+", line):
                flow = f"{two}>{one}" if line.startswith("\t") else f"{one}>{two}"
                out[flow] = out.get(flow, b"") + bytes.fromhex(line.strip())
    return out


def test_ranges_of_the_stream_are_those_that_tshark_follows() -> None:
    streams = followed(CAPTURES / "basic_chain.pcap")
    seen = 0
    with opened(Path("basic_chain.pcap")) as capture:
        for index in range(len(capture.records)):
            lines = told(capture, index)
            flow = capture.messages[index].location.flow
            assert flow is not None
            for number, line in enumerate(lines):
                found = CHUNK.fullmatch(line)
                if found:
                    start, end = int(found[2]), int(found[3])
                    expected = streams[flow][start:end]
                    assert bytes_below(lines, number + 1) == expected
                    assert expected or start == end
                    seen += 1
    assert seen > 24 * 5


@pytest.mark.parametrize("name", ["basic_chain.pcap", "views_alias.pcap.gz"])
def test_ranges_of_tensors_are_places_in_the_file(name: str) -> None:
    data = content(name)
    seen = 0
    with opened(Path(name)) as capture:
        for index, record in enumerate(capture.session.order):
            lines = told(capture, index)
            dumped, shown, at = b"", b"", 0
            for number, line in enumerate(lines):
                found = PLACE.fullmatch(line)
                if found:
                    start, end = int(found[1]), int(found[2])
                    dumped += data[start:end]
                    at = number + 1
                    assert bool(found[4]) == name.endswith(".gz")
                    seen += 1
                elif at == number and at:
                    shown += bytes_below(lines, number)
            assert shown == dumped
            del record
    assert seen > 5


def test_the_parts_of_a_message_follow_each_other_without_overlap() -> None:
    with opened(Path("profiled_legacy.pcap")) as capture:
        for index in range(len(capture.records)):
            record = capture.messages[index]
            chunks = [CHUNK.fullmatch(line) for line in told(capture, index)]
            ranges = [(int(c[2]), int(c[3]), c[1]) for c in chunks if c]
            assert ranges[0][2] == "descriptor"
            assert [r[2] for r in ranges][1:3] == ["message type", "message id"]
            assert all(a[1] <= b[0] for a, b in pairwise(ranges))
            assert ranges[-1][1] == record.tp.offset + record.tp.length


def test_envelopes_and_their_bytes_add_up_to_the_payload() -> None:
    with opened(Path("profiled_legacy.pcap")) as capture:
        lines = told(capture, 19)
        names = [line for line in lines if line.startswith(("envelope ", "body "))]
        assert names == [
            "envelope RUN_WITH_PROFILING_RESP",
            "envelope FORWARD_AUTOGRAD_RESP",
            "body PYTHON_RET",
        ]
        whole = b"".join(
            bytes_below(lines, number + 1)
            for number, line in enumerate(lines)
            if line.startswith(("bytes of command", "bytes of envelope"))
        )
        assert whole == from_payloads(capture.messages[19].tp.payloads).payload


def test_head_and_answer_name_each_other() -> None:
    with opened(Path("basic_chain.pcap")) as capture:
        request, answer = told(capture, 6), told(capture, 7)
    assert request[0] == "message 6: FORWARD_AUTOGRAD_REQ, worker0 → worker1"
    assert request[2] == "  answered by: message 7, latency 2.18 ms"
    assert answer[2] == "  answers: message 6, latency 2.18 ms"
    assert request[3] == "  sent: by the sender's own program"
    assert request[4].startswith("  time: 0.028726000 s after the first, 2026-11-")
    assert request[6].endswith("basic_chain.pcap, packet 357, 127.0.0.1:53808>127.0.0.1:46111, offset 363")
    assert "  context_id: 0 (0:0)" in request
    assert "    gain: 2.0" in request
    assert "  error: None" not in answer


def test_profiler_events_are_a_line_each() -> None:
    with opened(Path("profiled_legacy.pcap")) as capture:
        lines = told(capture, 19)
    first = lines.index("  events: 12 events") + 1
    assert lines[first] == "    0: mark  +0.000 ms  __start_profile  (thread 8, handle 0, node 1)"
    assert lines[first + 1] == (
        "    1: push  +0.317 ms  aten::mul  shapes [[4], [4]]  (thread 8, handle 14, node 1)"
    )
    assert lines[first + 3] == "    3: alloc +0.339 ms  +16 bytes  (thread 8, handle 0, node -1)"


def test_tracebacks_keep_their_lines() -> None:
    with opened(Path("bwd_boom.pcap.gz")) as capture:
        assert "    text: Error on Node 1: gradient exploded on purpose" in told(capture, 18)
    with opened(Path("ps_race.pcap.gz")) as capture:
        assert told(capture, 0)


def test_long_ranges_are_cut_unless_every_byte_is_wanted() -> None:
    with opened(Path("views_alias.pcap.gz")) as capture:
        short, full = told(capture, 6, every_byte=False), told(capture, 6)
    assert "  … 144 more bytes (--all shows them)" in short
    assert not any("more bytes" in line for line in full)
    assert len(full) > len(short)


def test_shared_storages_are_shown_once() -> None:
    with opened(Path("views_alias.pcap.gz")) as capture:
        lines = told(capture, 24)
    assert lines.count("  bytes: those of tensor#0") == 1
    assert sum(bool(PLACE.fullmatch(line)) for line in lines) >= 1


def test_tensors_that_are_not_there_say_so() -> None:
    with opened(Path("transport_matrix_uv_only.pcap.gz")) as capture:
        lines = told(capture, 6)
    assert "  storage: number 0 of this message, 16 KB, 16,000 bytes of it not captured" in lines
    assert not any(PLACE.fullmatch(line) for line in lines)


CAPTURED = sorted(path.name for path in CAPTURES.glob("*.pcap*"))


@pytest.mark.parametrize("name", CAPTURED)
def test_every_message_of_every_workload(name: str) -> None:
    with opened(Path(name)) as capture:
        for index in range(len(capture.records)):
            assert all(line.isprintable() for line in told(capture, index, every_byte=False))


@given(data=st.binary(max_size=100), start=st.integers(0, 1 << 40), rows=st.none() | st.integers(0, 8))
def test_hexdump(data: bytes, start: int, rows: int | None) -> None:
    lines = hexdump(data, start, rows).splitlines()
    limit = len(data) if rows is None else min(len(data), 16 * rows)
    dumped = [line for line in lines if "…" not in line]
    hexes = [line.split("  ")[2] for line in dumped]
    assert b"".join(bytes.fromhex(text) for text in hexes) == data[:limit]
    assert [int(line.split()[0], 16) for line in dumped] == list(range(start, start + limit, 16))
    assert all(line.isprintable() for line in lines)
    assert (len(data) > limit) == any("more byte" in line for line in lines)
