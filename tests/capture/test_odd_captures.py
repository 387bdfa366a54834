"""Files as people really have them, read through packets, segments and streams."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.builders import (
    ACK,
    FIN,
    SYN,
    Captured,
    enhanced,
    ethernet,
    interface,
    ipv4,
    link_frame,
    packet,
    pcap_file,
    section,
    tcp,
    udp,
    vxlan,
)
from tests.tensorpipe.reading import Reading, read_streams

A, B = "10.0.0.1:5000", "10.0.0.2:6000"
THERE, BACK = f"{A}>{B}", f"{B}>{A}"
ASKED, ANSWERED = (
    b"".join(b"question %d, " % n for n in range(8)),
    b"".join(b"answer %d; " % n for n in range(8)),
)
SECOND = 1_000_000_000


def talk(*, opened: bool = True, back: bool = True, link_type: int = 1) -> list[bytes]:
    """A conversation: handshake, eight questions and answers, the end."""
    frames = []
    asked, answered = 1000, 9000
    if opened:
        frames.append(packet(b"", A, B, sequence=asked - 1, flags=SYN, link_type=link_type))
        frames.append(
            packet(
                b"", B, A, sequence=answered - 1, acknowledgment=asked, flags=SYN | ACK, link_type=link_type
            )
        )
    for number in range(8):
        question, answer = b"question %d, " % number, b"answer %d; " % number
        frames.append(packet(question, A, B, sequence=asked, acknowledgment=answered, link_type=link_type))
        asked += len(question)
        frames.append(packet(answer, B, A, sequence=answered, acknowledgment=asked, link_type=link_type))
        answered += len(answer)
    frames.append(
        packet(b"", A, B, sequence=asked, acknowledgment=answered, flags=FIN | ACK, link_type=link_type)
    )
    backwards = packet(b"", B, A)[26:34]  # addresses
    return [frame for frame in frames if back or backwards not in frame]


def timed(frames: list[bytes]) -> list[Captured]:
    return [Captured(frame, SECOND + at) for at, frame in enumerate(frames)]


def read(data: bytes, path: Path) -> Reading:
    path.write_bytes(data)
    return read_streams([path])


def assert_all_there(found: Reading) -> None:
    assert len(found.connections) == 1
    assert (found[THERE].content, found[BACK].content) == (ASKED, ANSWERED)
    for stream in (found[THERE], found[BACK]):
        assert (stream.holes, stream.conflicts, stream.cut_bytes) == ([], [], 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "capture"


@pytest.mark.parametrize("link_type", [1, 113, 276])
@pytest.mark.parametrize("opened", [True, False])
def test_every_packet_seen_twice(link_type: int, opened: bool, path: Path) -> None:
    """As `-i any` has it: sent by one interface and received by another."""
    frames = [frame for frame in talk(link_type=link_type, opened=opened) for _ in range(2)]
    assert_all_there(read(pcap_file(timed(frames), link_type=link_type), path))


@pytest.mark.parametrize("delay", [1, 2, 5, 30])
def test_the_second_copy_comes_later(delay: int, path: Path) -> None:
    packets = timed(talk())
    copies = [Captured(one.data, one.time_ns + delay) for one in packets]
    both = sorted(packets + copies, key=lambda one: one.time_ns)
    assert_all_there(read(pcap_file(both), path))


def test_inside_and_outside_of_a_tunnel(path: Path) -> None:
    """A host's interfaces of a container's network and of the network that carries it."""

    def outer(frame: bytes) -> bytes:
        body = udp(vxlan(frame), 4789)
        return ethernet(ipv4(body, "192.168.0.1", "192.168.0.2", protocol=17))

    frames = [one for frame in talk() for one in (frame, outer(frame))]
    assert_all_there(read(pcap_file(timed(frames)), path))


def test_interfaces_of_different_kinds_in_one_file(path: Path) -> None:
    """One conversation over three interfaces, whose clocks count differently."""
    kinds, units = (1, 101, 276), (9, 6, 3)
    blocks = [section()]
    blocks += [interface(link_type=kind, resolution=unit) for kind, unit in zip(kinds, units, strict=True)]
    whole = [packet_[14:] for packet_ in talk()]
    for at, body in enumerate(whole):
        which = at % 3
        ticks = (SECOND + at * 1_000_000) // 10 ** (9 - units[which])
        blocks.append(enhanced("<", link_frame(kinds[which], body), ticks=ticks, interface_id=which))
    found = read(b"".join(blocks), path)
    assert_all_there(found)
    assert found[THERE].stamp[:2] == (SECOND + 2_000_000, SECOND + 16_000_000)


def test_the_same_packet_on_two_interfaces_of_one_file(path: Path) -> None:
    blocks = [section(), interface(link_type=1), interface(link_type=101)]
    for frame in talk():
        blocks.append(enhanced("<", frame, interface_id=0))
        blocks.append(enhanced("<", frame[14:], interface_id=1))
    assert_all_there(read(b"".join(blocks), path))


@pytest.mark.parametrize("snap", [54, 55, 60, 64])
def test_snap_length(snap: int, path: Path) -> None:
    packets = [Captured(one.data[:snap], one.time_ns, len(one.data)) for one in timed(talk())]
    found = read(pcap_file(packets, snap_length=snap), path)
    assert found.problems == []
    for flow, content in ((THERE, ASKED), (BACK, ANSWERED)):
        if flow not in found.streams:
            assert snap == 54
            continue
        stream = found[flow]
        missing = {at for start, end in stream.holes for at in range(start, end)}
        size = max(len(stream.content), max(missing, default=-1) + 1)
        assert size == len(content)
        assert stream.cut_bytes == len(missing)
        assert all(stream.content[at] == content[at] for at in range(size) if at not in missing)
        assert len(missing) == sum(max(0, 54 + step - snap) for step in steps(flow))


def steps(flow: str) -> list[int]:
    """Sizes of the payloads of one direction."""
    return [len(b"question 0, ")] * 8 if flow == THERE else [len(b"answer 0; ")] * 8


def test_a_file_cut_anywhere(path: Path) -> None:
    data = pcap_file(timed(talk()))
    longest = -1
    for size in range(24, len(data) + 1, 7):
        found = read(data[:size], path)
        there = found.streams.get(THERE)
        content = there[0].content if there else b""
        assert ASKED.startswith(content.rstrip(b"\0"))
        assert len(content) >= longest
        longest = len(content)
        assert len(found.problems) <= 1
    assert longest == len(ASKED)


def test_more_bytes_than_there_were_on_the_wire(path: Path) -> None:
    """caplen > len: some writers put lengths of their own there."""
    packets = [Captured(one.data, one.time_ns, length) for length, one in enumerate(timed(talk()))]
    assert_all_there(read(pcap_file(packets), path))


def test_packets_without_a_byte(path: Path) -> None:
    packets = [one for whole in timed(talk()) for one in (Captured(b"", whole.time_ns), whole)]
    found = read(pcap_file(packets), path)
    assert_all_there(found)
    assert found.other == {"cut header": len(packets) // 2}
    packets = [Captured(b"", one.time_ns, len(one.data)) for one in packets]
    assert read(pcap_file(packets), path).connections == []


@pytest.mark.parametrize("step", [-1, -1_000_000, -10 * SECOND, -100 * SECOND])
def test_time_going_backwards(step: int, path: Path) -> None:
    packets = [Captured(frame, 3000 * SECOND + at * step) for at, frame in enumerate(talk())]
    found = read(pcap_file(packets), path)
    assert_all_there(found)
    first, last, _, number, *_ = found[THERE].stamp
    assert (first, last, number) == (3000 * SECOND + 16 * step, 3000 * SECOND + 2 * step, 3)


def test_time_going_backwards_does_not_end_the_wait_for_a_late_packet(path: Path) -> None:
    frames = talk()
    frames[4], frames[6] = frames[6], frames[4]
    packets = [Captured(frame, (3000 - at) * SECOND) for at, frame in enumerate(frames)]
    assert_all_there(read(pcap_file(packets), path))


@pytest.mark.parametrize("opened", [True, False])
def test_one_direction_only(opened: bool, path: Path) -> None:
    found = read(pcap_file(timed(talk(opened=opened, back=False))), path)
    assert list(found.streams) == [THERE]
    stream = found[THERE]
    assert (stream.content, stream.holes) == (ASKED, [])
    assert found.connections[0].backward.holes == []


def test_one_direction_only_with_a_loss(path: Path) -> None:
    frames = talk(back=False)
    del frames[3]
    found = read(pcap_file(timed(frames)), path)
    assert found[THERE].holes == [(24, 36)]
    assert found[THERE].content == ASKED[:24] + bytes(12) + ASKED[36:]


def test_ports_that_are_zero_and_a_flow_with_itself(path: Path) -> None:
    frames = [ethernet(ipv4(tcp(b"x", 0, 0, sequence=5), "127.0.0.1", "127.0.0.1"))] * 2
    found = read(pcap_file(timed(frames)), path)
    assert found["127.0.0.1:0>127.0.0.1:0"].content == b"x"


def test_padding_of_short_frames_is_no_data(path: Path) -> None:
    packets = [Captured(one.data.ljust(100, b"\xaa"), one.time_ns) for one in timed(talk())]
    assert_all_there(read(pcap_file(packets), path))


def test_a_length_of_0_that_offload_left(path: Path) -> None:
    frames = [frame[:16] + struct.pack(">H", 0) + frame[18:] for frame in talk()]
    assert_all_there(read(pcap_file(timed(frames)), path))


def test_two_files_of_which_each_saw_one_direction(tmp_path: Path) -> None:
    frames = timed(talk())
    forward, both = tmp_path / "a", tmp_path / "b"
    addresses = packet(b"", B, A)[26:34]
    forward.write_bytes(pcap_file([one for one in frames if addresses not in one.data]))
    both.write_bytes(pcap_file([one for one in frames if addresses in one.data]))
    for paths in ([forward, both], [both, forward]):
        assert_all_there(read_streams(paths))
