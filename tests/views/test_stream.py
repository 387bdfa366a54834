"""Messages as they become complete."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.pipeline import Decoding, Options
from rpcinspect.views.stream import JsonStream, TableStream
from tests.decoded import decode
from tests.views.opened import CAPTURES, file_console, terminal_console

BOOM = str(CAPTURES / "bwd_boom.pcap.gz")
LIVE = Options(by_completion=True)


def streamed(path: str) -> list[dict[str, Any]]:
    with Decoding([path], LIVE) as decoding:
        view = JsonStream(decoding, hashes=True)
        out = [view.line(record) for record in decoding.records()]
        out.append(view.rest(decoding.session))
    return [json.loads(line) for line in b"".join(out).splitlines()]


def test_lines_are_numbered_as_they_come_and_agree_with_the_rest() -> None:
    lines = streamed(BOOM)
    messages = [line for line in lines if line["kind"] == "message"]
    assert [m["index"] for m in messages] == list(range(32))
    assert [m["end_time_ns"] for m in messages] == sorted(m["end_time_ns"] for m in messages)
    for message in messages:
        if message["answers"] is not None:
            request = messages[message["answers"]]
            assert (request["id"], request["pipe"], request["request"]) == (
                message["id"],
                message["pipe"],
                True,
            )
            assert request["index"] < message["index"]
    (context,) = [line for line in lines if line["kind"] == "context"]
    for edge in context["edges"]:
        envelopes = messages[edge["forward"]]["envelopes"]
        assert edge["autograd_message_id"] in [e["autograd_message_id"] for e in envelopes]
        assert all(messages[i]["type"] == "BACKWARD_AUTOGRAD_REQ" for i in edge["backward"])


@pytest.mark.parametrize("name", ["bwd_boom.pcap.gz", "profiled_legacy.pcap", "rref_relay.pcap.gz"])
def test_the_messages_are_those_of_the_whole_output(name: str) -> None:
    def essence(line: dict[str, Any]) -> str:
        late = (
            "index",
            "answers",
            "src",
            "dst",
            "answered_by",
            "latency_ns",
            "parents",
            "parent_certain",
            "call",
        )
        return json.dumps({k: v for k, v in line.items() if k not in late})

    path = CAPTURES / name
    live = [line for line in streamed(str(path)) if line["kind"] == "message"]
    assert sorted(map(essence, live)) == sorted(map(essence, decode(path).messages))


def test_table_lines_come_one_by_one_with_a_header_first() -> None:
    console, out = file_console()
    seen: list[int] = []
    with Decoding([BOOM], LIVE) as decoding:
        view = TableStream(decoding, console, show_all=False)
        for record in decoding.records():
            view.show(record)
            seen.append(len(out.getvalue().splitlines()))
    lines = out.getvalue().splitlines()
    assert lines[0].split()[0] == "#"
    assert seen[0] == 1  # housekeeping is hidden, but a user sees that messages come
    assert seen == sorted(seen)
    assert len(lines) == 1 + 8
    assert all(b - a in (0, 1) for a, b in pairwise(seen))


def test_housekeeping_on_demand() -> None:
    console, out = file_console()
    with Decoding([BOOM], LIVE) as decoding:
        view = TableStream(decoding, console, show_all=True)
        for record in decoding.records():
            view.show(record)
    assert len(out.getvalue().splitlines()) == 1 + 32


def test_narrow_terminals_and_errors() -> None:
    console, out = terminal_console(40)
    with Decoding([BOOM], LIVE) as decoding:
        view = TableStream(decoding, console, show_all=False)
        for record in decoding.records():
            view.show(record)
    red = [line for line in out.getvalue().splitlines() if line.startswith("\x1b[31m")]
    assert len(red) == 2 * 2
    assert "EXCEPTION" in red[1]


def test_names_are_those_known_by_then() -> None:
    with Decoding([BOOM], LIVE) as decoding:
        view = JsonStream(decoding, hashes=False)
        first = json.loads(view.line(next(decoding.records())))
    assert {first["src"], first["dst"]} <= {"worker0", "worker1", "worker2"}


def test_a_file_that_begins_in_the_middle(tmp_path: Path) -> None:
    data = (CAPTURES / "basic_chain.pcap").read_bytes()
    cut = tmp_path / "late.pcap"
    start, at = 24, 0
    call = decode(CAPTURES / "basic_chain.pcap").messages[6]["location"]["packet"]
    while at < call + 14:  # packets
        start += 16 + int.from_bytes(data[start + 8 : start + 12], "little")
        at += 1
    cut.write_bytes(data[:24] + data[start:])
    lines = streamed(str(cut))
    messages = [line for line in lines if line["kind"] == "message"]
    assert messages
    assert all(m["answers"] is None or m["answers"] < m["index"] for m in messages)
