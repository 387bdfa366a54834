"""The packets of a capture come out as they were, with comments that tshark shows at the right ones."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from rpcinspect.capture import CaptureReader, Reading
from rpcinspect.errors import OutputError
from rpcinspect.export.wireshark.comments import MAX_COMMENT, MAX_COMMENTS, Commented, write_comments
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.record import RpcRecord
from tests.builders import Captured, enhanced, interface, packet, pcap_file, section
from tests.decoded import decode
from tests.places import content, recorded
from tests.tshark import fields, needs_tshark

Packet = tuple[int, bytes, int, int]


def export(
    output: Path, *paths: Path, wanted: Callable[[RpcRecord], bool] = lambda record: True
) -> Commented:
    """Writes the packets of captures that are one session."""
    with Decoding([str(path) for path in paths], Options(index=False)) as decoding:
        list(decoding.records())
        session = decoding.session
    with Decoding([str(path) for path in paths]) as again, output.open("wb") as file:
        return write_comments(file, session, again, filter(wanted, again.records()))


def packets(*paths: Path) -> list[Packet]:
    """(time, bytes, length on the wire, link type) of the packets of captures, one after the other."""
    found = []
    for path in paths:
        with CaptureReader(str(path)) as reader:
            for block in reader.blocks():
                rows = (block.offset, block.caplen, block.time_ns, block.length, block.link_type)
                for offset, size, time_ns, length, kind in zip(*(c.tolist() for c in rows), strict=True):
                    found.append((time_ns, reader.pread(offset, size), length, kind))
    return found


def comments(path: Path, *options: str) -> dict[int, str]:
    """The comments that tshark shows, by packet."""
    lines = fields(path, ["frame.number", "frame.comment"], "-Y", "frame.comment", *options)
    return {int(number): text for number, text in lines}


@needs_tshark
@pytest.mark.parametrize("name", ["basic_chain.pcap", pytest.param("bwd_boom.pcap", marks=pytest.mark.slow)])
def test_comments_stand_at_the_first_packets(name: str, tmp_path: Path) -> None:
    """From a file, and from one that is compressed."""
    path, output = recorded(name), tmp_path / "out.pcapng"
    messages = decode(path).messages
    assert export(output, path) == Commented(len(packets(path)), len(messages))
    assert packets(output) == packets(path)
    shown = comments(output)
    assert sorted(shown) == sorted({m["location"]["packet"] for m in messages})
    for message in messages:
        text = shown[message["location"]["packet"]]
        assert f"#{message['index']} {message['type']} {message['src']} → {message['dst']}" in text
        assert (message["body"].get("function") or "") in text
    assert decode(output).messages == messages


@needs_tshark
def test_a_filter_chooses_what_is_commented(tmp_path: Path) -> None:
    path, output = recorded("basic_chain.pcap"), tmp_path / "out.pcapng"
    done = export(output, path, wanted=lambda record: record.tp.packet == 357)
    assert (done.packets, done.messages) == (585, 1)
    assert packets(output) == packets(path)
    assert list(comments(output, "-Y", 'frame.comment contains "scale"')) == [357]


def test_captures_are_joined_by_time(tmp_path: Path) -> None:
    """Of other link types, with times that go back within a file, packets that were cut, times that a pcap
    can't hold."""
    frames = [packet(b"x" * n, "10.0.0.1:5000", "10.0.0.2:80", sequence=n) for n in range(1, 8)]
    raw = packet(b"raw", "10.0.0.1:5000", "10.0.0.2:80", link_type=101)
    one, two = tmp_path / "one.pcap", tmp_path / "two.pcapng"
    times = [5, 9, 7, 10**18 + 3]
    one.write_bytes(pcap_file([Captured(f, t, 90) for f, t in zip(frames, times, strict=False)]))
    two.write_bytes(
        section(">")
        + interface(">", resolution=9)
        + interface(">", link_type=101, resolution=9)
        + enhanced(">", frames[5], ticks=6)
        + enhanced(">", raw, ticks=8, interface_id=1)
        + enhanced(">", frames[6], ticks=11)
    )
    output = tmp_path / "out.pcapng"
    assert export(output, one, two) == Commented(7, 0)
    found = packets(output)
    assert sorted(found) == sorted(packets(one, two))
    assert [time_ns for time_ns, _, _, _ in found] == [5, 6, 8, 9, 7, 11, 10**18 + 3]


@needs_tshark
def test_of_two_captures_each_has_its_comments(tmp_path: Path) -> None:
    paths, output = [recorded("basic_chain.pcap"), recorded("rref_relay.pcap")], tmp_path / "out.pcapng"
    export(output, *paths)
    messages = decode(*paths).messages
    assert [text.split()[0] for _, text in sorted(comments(output).items())] == [
        f"#{m['index']}" for m in sorted(messages, key=lambda m: m["time_ns"])
    ]


@needs_tshark
def test_hostile_names_are_one_printable_line(tmp_path: Path) -> None:
    data = (
        content("basic_chain.pcap")
        .replace(b"worker1", b"\x1b]0;\r\n\0")
        .replace(b"scale", "\u202e%\t".encode())
    )
    path, output = tmp_path / "hostile.pcap", tmp_path / "out.pcapng"
    path.write_bytes(data)
    assert export(output, path).messages == 24
    assert packets(output) == packets(path)
    shown = comments(output)
    assert len(shown) == 24
    assert all(text.isprintable() and len(text) <= MAX_COMMENT for text in shown.values())
    assert any("\\u202e%\\t" in text for text in shown.values())


@needs_tshark
def test_many_messages_of_one_packet(tmp_path: Path) -> None:
    """All messages are made to begin in the same packet, four times over."""
    path, output = recorded("basic_chain.pcap"), tmp_path / "out.pcapng"
    with Decoding([str(path)]) as decoding:
        records = list(decoding.records())
        for record in records:
            record.tp.packet = 400
        with output.open("wb") as file:
            write_comments(file, decoding.session, decoding, records * 3)
    assert packets(output) == packets(path)
    (text,) = comments(output).values()
    assert text.count("_") > MAX_COMMENTS
    assert text.endswith(f"and {72 - MAX_COMMENTS} more messages begin here")


@pytest.mark.parametrize(
    ("name", "reader", "reason"),
    [
        ("attacks/d_f11_class.rpclog", "auto", "a log holds messages without their packets"),
        pytest.param("basic_chain.pcap", "tshark", "tshark reads it, packet by packet", marks=needs_tshark),
    ],
)
def test_what_has_no_packets_is_refused(name: str, reader: str, reason: str) -> None:
    with Decoding([str(recorded(name))], Options(reading=Reading(reader=reader))) as decoding:
        records = list(decoding.records())
        with pytest.raises(OutputError, match=reason):
            write_comments(io.BytesIO(), decoding.session, decoding, records)
