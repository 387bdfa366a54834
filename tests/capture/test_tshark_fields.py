"""Lines as tshark prints them, written by hand, and what they must become."""

from __future__ import annotations

from binascii import hexlify

import pytest

from rpcinspect.capture.block import Direction, TcpBlock
from rpcinspect.capture.tshark_fields import FIELDS, FieldLines, nanoseconds

A, B = b"\x0a\0\0\1", b"\x0a\0\0\2"
SIX_A, SIX_B = bytes(15) + b"\1", bytes(15) + b"\2"


def line(
    payload: bytes | str = b"",
    *,
    protocols: str = "eth:ethertype:ip:tcp",
    ip: tuple[str, str] = ("10.0.0.1", "10.0.0.2"),
    ipv6: tuple[str, str] = ("", ""),
    ports: tuple[str, str] = ("5000", "6000"),
    number: int = 1,
    when: str = "1700000000.123456789",
    sequence: str = "1000",
    acknowledged: str = "2000",
    flags: str = "0x0018",
    length: str | None = None,
) -> bytes:
    """One packet; the payload as bytes or as tshark's digits."""
    digits = payload if isinstance(payload, str) else hexlify(payload).decode()
    size = str(len(payload)) if length is None else length
    fields = [*ip, *ipv6, *ports, protocols, str(number), when, sequence, acknowledged, flags, size, digits]
    assert len(fields) == len(FIELDS)
    return "\t".join(fields).encode()


def block(*lines: bytes, offset: int = 0) -> TcpBlock:
    """What they become."""
    made = FieldLines(0).feed(lines, offset)
    assert made is not None
    return made


def directions(made: TcpBlock) -> list[Direction]:
    """The direction of each segment."""
    return [made.directions[index] for index in made.segments.flow.tolist()]


def payloads(made: TcpBlock) -> list[bytes]:
    """The payload of each segment."""
    starts = (made.segments.offset - made.segments.window_offset).tolist()
    return [
        made.segments.window[at : at + n]
        for at, n in zip(starts, made.segments.captured.tolist(), strict=True)
    ]


def test_a_segment() -> None:
    made = block(line(b"hello", number=7), line(number=9, flags="0x0012"), offset=100)
    assert (made.packets, made.segments.packet.tolist(), made.segments.length.tolist()) == (2, [7, 9], [5, 0])
    assert made.segments.time_ns.tolist() == [1_700_000_000_123_456_789] * 2
    assert made.times == (1_700_000_000_123_456_789,) * 2
    assert (made.segments.sequence.tolist(), made.segments.acknowledgment.tolist()) == (
        [1000] * 2,
        [2000] * 2,
    )
    assert made.segments.flags.tolist() == [0x18, 0x12]
    assert directions(made) == [Direction(A, 5000, B, 6000)] * 2
    assert (made.segments.offset.tolist(), payloads(made)) == ([100, 105], [b"hello", b""])


def test_ipv6_and_more_flags_than_six() -> None:
    one = line(b"x", protocols="raw:ipv6:tcp", ip=("", ""), ipv6=("::1", "::2"), flags="0x00000118")
    made = block(one)
    assert directions(made) == [Direction(SIX_A, 5000, SIX_B, 6000)]
    assert made.segments.flags.tolist() == [0x18]


@pytest.mark.parametrize(
    ("protocols", "ip", "ipv6", "expected"),
    [
        pytest.param(
            "eth:ethertype:ip:udp:vxlan:eth:ethertype:ip:tcp",
            ("172.16.0.1,10.0.0.1", "172.16.0.2,10.0.0.2"),
            ("", ""),
            (A, B),
            id="vxlan",
        ),
        pytest.param(
            "eth:ethertype:ipv6:ip:tcp", ("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2"), (A, B), id="4in6"
        ),
        pytest.param(
            "eth:ethertype:ip:ipv6:tcp", ("10.0.0.1", "10.0.0.2"), ("::1", "::2"), (SIX_A, SIX_B), id="6in4"
        ),
    ],
)
def test_the_innermost_addresses_count(
    protocols: str, ip: tuple[str, str], ipv6: tuple[str, str], expected: tuple[bytes, bytes]
) -> None:
    made = block(line(b"x", protocols=protocols, ip=ip, ipv6=ipv6))
    assert directions(made) == [Direction(expected[0], 5000, expected[1], 6000)]


def test_a_packet_of_two_segments() -> None:
    made = block(
        line(
            "aabb,cc",
            protocols="eth:ethertype:ip:tcp:pptp:ip:tcp:data",
            ip=("10.0.0.2,10.0.0.1", "10.0.0.1,10.0.0.2"),
            ports=("9,5000", "8,6000"),
            sequence="1,1000",
            acknowledged="2,2000",
            flags="0x0010,0x0018",
            length="2,1",
        )
    )
    assert directions(made) == [Direction(B, 9, A, 8), Direction(A, 5000, B, 6000)]
    assert (made.packets, made.segments.packet.tolist()) == (1, [1, 1])
    assert (made.segments.sequence.tolist(), payloads(made)) == ([1, 1000], [b"\xaa\xbb", b"\xcc"])


def test_what_an_error_quotes_is_no_segment() -> None:
    quoted = line(
        protocols="eth:ethertype:ip:icmp:ip:tcp",
        ip=("10.0.0.2,10.0.0.1", "10.0.0.1,10.0.0.2"),
        length="",
    )
    made = block(quoted)
    assert (len(made.segments), made.packets, made.other) == (0, 1, {"icmp": 1})


def test_other_packets_are_counted() -> None:
    none = {"ip": ("", ""), "ports": ("", ""), "sequence": "", "acknowledged": "", "flags": "", "length": ""}
    made = block(
        line(protocols="eth:ethertype:arp", **none),  # type: ignore[arg-type]
        line(protocols="eth:ethertype:ip:udp:dns", **(none | {"ip": ("10.0.0.1", "10.0.0.2")})),  # type: ignore[arg-type]
        line(protocols="", **none),  # type: ignore[arg-type]
        line(sequence="", acknowledged="", flags="", length=""),
    )
    assert (len(made.segments), made.packets) == (0, 4)
    assert made.other == {"arp": 1, "udp": 1, "no protocol": 1, "cut header": 1}


def test_a_cut_payload_and_a_reset_with_a_text() -> None:
    made = block(line("aabb", length="10"), line("", length="13", flags="0x0014"))
    assert (made.segments.captured.tolist(), made.segments.length.tolist()) == ([2, 0], [10, 0])


def test_colons_between_the_digits() -> None:
    made = block(line("aa:bb:cc", length="3"), line(b"\1\2"), line("dd", length="1"))
    assert payloads(made) == [b"\xaa\xbb\xcc", b"\1\2", b"\xdd"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1.000000001", 1_000_000_001),
        (b"0.000000000", 0),
        (b"1700000000.5", 1_700_000_000_500_000_000),
        (b"17", 17_000_000_000),
    ],
)
def test_times_are_exact(text: bytes, expected: int) -> None:
    assert nanoseconds(text) == expected


def test_a_packet_without_a_time_has_that_before_it() -> None:
    made = block(line(when=""), line(), line(when=""))
    assert made.segments.time_ns.tolist() == [0, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\t" * 5, id="few fields"),
        pytest.param(line().replace(b"\t1\t1700", b"\tone\t1700"), id="no number"),
        pytest.param(line(when="yesterday"), id="no time"),
    ],
)
def test_what_is_no_packet(wrong: bytes) -> None:
    lines = FieldLines(0)
    assert lines.feed([wrong], 0) is None
    assert lines.unreadable == 1


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(line(b"ab", length="1"), id="more than announced"),
        pytest.param(line("zz", length="1", sequence="x"), id="no sequence"),
        pytest.param(line(b"ab", ip=("somewhere", "10.0.0.2")), id="no address"),
        pytest.param(line(b"ab", ports=("5000", "")), id="no port"),
        pytest.param(line(b"ab", flags="flags"), id="no flags"),
    ],
)
def test_odd_fields_give_no_segment(odd: bytes) -> None:
    made = block(odd, line(b"good"))
    assert (len(made.segments), made.packets, payloads(made)) == (1, 2, [b"good"])
