"""Frames made from what sockets sent: literal bytes, checksums added up word by word, what tshark thinks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.capture.tshark import find_program
from rpcinspect.tcp.packetize import LINK_TYPE, MAX_PAYLOAD, Packetizer
from tests.builders import Captured, pcap_file
from tests.thorough import examples

CLIENT, SERVER = ("127.0.0.1", 0x1234), ("127.0.0.1", 0x5678)
CLIENT6, SERVER6 = ("::1", 0x1234), ("::1", 0x5678)


def word_sum(data: bytes) -> int:
    """RFC 1071 as it is written: 16-bit words added, carries added to the end."""
    total = 0
    for at in range(0, len(data), 2):
        total += int.from_bytes(data[at : at + 2].ljust(2, b"\0"), "big")
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_literal_bytes() -> None:
    talk = Packetizer(CLIENT, SERVER, initial=(0x01020304, 0x0A0B0C0D))
    syn, _, ack = talk.open()
    assert syn == bytes.fromhex(
        "000000000000 000000000000 0800"
        "4500 0030 0000 4000 40 06 3cc6 7f000001 7f000001"
        "1234 5678 01020304 00000000 7002 ffff 1f4c 0000"
        "0204 ffc4 01 03030e"
    )
    assert ack[34:46] == bytes.fromhex("1234 5678 01020305 0a0b0c0e")
    (hello,) = talk.data(False, b"hello")
    assert hello[34:48] == bytes.fromhex("5678 1234 0a0b0c0e 01020305 5018")
    assert hello[54:] == b"hello"
    (first, second, third) = talk.close(False)
    assert first[34:48] == bytes.fromhex("5678 1234 0a0b0c13 01020305 5011")
    assert second[34:48] == bytes.fromhex("1234 5678 01020305 0a0b0c14 5011")
    assert third[34:48] == bytes.fromhex("5678 1234 0a0b0c14 01020306 5010")


def test_literal_bytes_of_ipv6() -> None:
    talk = Packetizer(CLIENT6, SERVER6, initial=(1, 2))
    syn, *_ = talk.open()
    one = "00000000000000000000000000000001"
    head = "000000000000 000000000000 86dd60000000 001c 06 40"
    assert syn[:54] == bytes.fromhex(head + one + one)
    assert syn[54:68] == bytes.fromhex("1234 5678 00000001 00000000 7002")


@settings(max_examples=examples(30), deadline=None)
@given(
    part=st.binary(min_size=1, max_size=9),
    times=st.integers(1, 30_000),
    initial=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    ipv6=st.booleans(),
)
def test_checksums_add_up(part: bytes, times: int, initial: tuple[int, int], ipv6: bool) -> None:
    data = part * times
    talk = Packetizer(*((CLIENT6, SERVER6) if ipv6 else (CLIENT, SERVER)), initial=initial)
    frames = [*talk.open(), *talk.data(True, data), *talk.close(True)]
    assert len(frames) == 6 + -(-len(data) // MAX_PAYLOAD)
    start = 40 + 14 if ipv6 else 20 + 14
    for frame in frames:
        assert len(frame) <= 0x10000 + 14
        assert ipv6 or word_sum(frame[14:34]) == 0xFFFF
        addresses = frame[22:54] if ipv6 else frame[26:34]
        tcp = frame[start:]
        assert word_sum(addresses + len(tcp).to_bytes(4, "big") + b"\0\0\0\6" + tcp) == 0xFFFF
    assert b"".join(frame[start + 20 :] for frame in frames[3:-3]) == data


@pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")
def test_tshark_finds_nothing_wrong(tmp_path: Path) -> None:
    path = tmp_path / "made.pcap"
    frames: list[bytes] = []
    for client, server in ((CLIENT, SERVER), (CLIENT6, SERVER6)):
        talk = Packetizer(client, server, initial=(2**32 - 5, 2**32 - 100_000))
        frames += talk.open()
        for turn in range(40):
            frames += talk.data(turn % 3 == 0, bytes([turn]) * (turn * 10_007 + 1))
        frames += talk.close(True)
    path.write_bytes(pcap_file([Captured(frame, n) for n, frame in enumerate(frames)], link_type=LINK_TYPE))
    command = ["tshark", "-r", str(path), "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"]
    command += ["-T", "fields", "-e", "tcp.len", "-e", "tcp.checksum.status", "-e", "ip.checksum.status"]
    command += ["-e", "tcp.analysis.flags", "-e", "_ws.expert.severity"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60, text=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == len(frames)
    assert sum(int(row[0]) for row in rows) == 2 * sum(turn * 10_007 + 1 for turn in range(40))
    assert {tuple(row[1:4]) for row in rows} == {("1", "1", ""), ("1", "", "")}
    worst = max((int(value, 0) for row in rows for value in row[4].split(",") if value), default=0)
    assert worst <= 0x400000  # chats and notes: that connections begin and end


def test_the_sequence_wraps() -> None:
    talk = Packetizer(CLIENT, SERVER, initial=(2**32 - 1, 2**32 - 3))
    list(talk.open())
    list(talk.data(False, b"12345"))
    (frame,) = talk.data(True, b"x")
    assert frame[38:46] == bytes.fromhex("00000000 00000003")


def numbers(frame: bytes) -> tuple[int, int]:
    """Sequence and acknowledgement of a frame of IPv4."""
    return int.from_bytes(frame[38:42], "big"), int.from_bytes(frame[42:46], "big")


def test_bytes_out_of_their_order_are_acknowledged_once_those_before_them_came() -> None:
    talk = Packetizer(CLIENT, SERVER, initial=(100, 200))
    list(talk.open())
    (late,) = talk.data(True, b"def", 3)
    assert numbers(late) == (104, 201)
    assert numbers(next(talk.data(False, b"x"))) == (201, 101)  # nothing to acknowledge yet
    (early,) = talk.data(True, b"abc", 0)
    assert numbers(early) == (101, 202)
    assert numbers(next(talk.data(False, b"y"))) == (202, 107)
    assert numbers(next(talk.data(True, b"g"))) == (107, 203)


def test_what_never_comes_is_never_acknowledged_and_counts_at_the_end() -> None:
    talk = Packetizer(CLIENT, SERVER, initial=(100, 200))
    list(talk.open())
    list(talk.data(True, b"abc"))
    list(talk.data(True, b"z", 10))
    first, second, third = talk.close(True, (11, 0))
    assert (numbers(first), numbers(second), numbers(third)) == ((112, 201), (201, 104), (113, 202))


@given(st.permutations(range(8)))
def test_any_order_comes_to_the_same(order: list[int]) -> None:
    talk = Packetizer(CLIENT, SERVER, initial=(2**32 - 4, 0))
    list(talk.open())
    for place in order:
        (frame,) = talk.data(True, bytes([place]), place)
        assert numbers(frame)[0] == (2**32 - 3 + place) % 2**32
    assert numbers(next(talk.data(False, b"x")))[1] == (2**32 - 3 + 8) % 2**32
