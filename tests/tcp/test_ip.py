"""IPv4 and IPv6 headers: lengths, options, extensions, fragments and what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.tcp.ip import NETWORKS, PROTOCOLS, TCP, Fragments, IpPackets
from rpcinspect.tcp.rows import IPV4, IPV6, Rows
from tests.builders import Captured, ipv4, ipv6, packet_block
from tests.thorough import examples

A4, B4 = "10.0.0.1", "192.168.255.254"
A6, B6 = "2001:db8::1", "fe80::ffff"
BODY = bytes(range(1, 30))


Found = list[tuple[int, bytes, int]]
"""(row, bytes that are there, bytes on the wire) of each packet."""


def headers(
    version: int, packets: Sequence[bytes | Captured]
) -> tuple[bytes, IpPackets, Fragments | None, Counter[str]]:
    """What the reader of that EtherType gives, behind the window that its positions count from."""
    block = packet_block(packets)
    counted: Counter[str] = Counter()

    def count(reason: str, number: int) -> None:
        counted[reason] += number

    found, fragments = NETWORKS[version](block.window, Rows.of_block(block), count)
    return block.window, found, fragments, +counted


def contents(window: bytes, rows: Rows) -> Found:
    columns = (rows.row.tolist(), rows.at.tolist(), rows.end.tolist(), rows.wire.tolist())
    return [(row, window[at:end], wire - at) for row, at, end, wire in zip(*columns, strict=True)]


def read(version: int, packets: Sequence[bytes | Captured]) -> tuple[Found, dict[str, int]]:
    """TCP packets at their header, and how many of others there are."""
    window, found, fragments, counted = headers(version, packets)
    for number in found.protocol[found.protocol != TCP].tolist():
        counted[PROTOCOLS.get(number, f"ip protocol {number}")] += 1
    if fragments is not None:
        counted["fragment"] += len(fragments.packets.rows)
    return contents(window, found.keep(found.protocol == TCP).rows), dict(counted)


def test_ipv4_literal() -> None:
    header = bytes.fromhex(
        "46 00 001a"  # version 4, 24 bytes of header, total length 26
        "0001 4000 40 06 0000"  # id, don't fragment, TTL, TCP, no checksum
        "0a000001 c0a8fffe 01010100"  # from, to, options
    )
    assert read(IPV4, [header + b"ab" + b"padding"]) == ([(0, b"ab", 2)], {})


def test_ipv4_addresses_are_one_number() -> None:
    _, found, _, _ = headers(IPV4, [ipv4(BODY, A4, B4), ipv4(BODY, B4, A4)])
    assert [hex(number) for number in found.addresses[0].tolist()] == [
        "0xa000001c0a8fffe",
        "0xc0a8fffe0a000001",
    ]


def test_ipv6_addresses_are_four_numbers() -> None:
    _, found, _, _ = headers(IPV6, [ipv6(BODY, A6, B6)])
    assert [hex(column[0]) for column in found.addresses] == [
        "0x20010db800000000",
        "0x1",
        "0xfe80000000000000",
        "0xffff",
    ]


@pytest.mark.parametrize("options", [b"", b"\1", bytes(40)])
def test_ipv4_options_and_padding(options: bytes) -> None:
    packet = ipv4(BODY, A4, B4, options=options)
    assert read(IPV4, [packet, packet + bytes(6)]) == ([(0, BODY, 29), (1, BODY, 29)], {})


def test_length_0_is_the_rest_of_the_frame() -> None:
    big = bytes(100_000)
    assert read(IPV4, [ipv4(BODY, A4, B4, total=0), ipv4(big, A4, B4)]) == (
        [(0, BODY, 29), (1, big, 100_000)],
        {},
    )
    assert read(IPV6, [ipv6(BODY, A6, B6, payload_length=0), ipv6(big, A6, B6)]) == (
        [(0, BODY, 29), (1, big, 100_000)],
        {},
    )
    jumbo = (0, b"\0\xc2\4\0\1\x86\xa8")  # hop by hop: the jumbo payload option
    assert read(IPV6, [ipv6(big, A6, B6, extensions=[jumbo])]) == ([(0, big, 100_000)], {})


def test_cut_by_snap_length() -> None:
    packets: list[bytes | Captured] = [Captured(ipv4(BODY, A4, B4)[:30], length=49)]
    assert read(IPV4, packets) == ([(0, BODY[:10], 29)], {})
    packets = [Captured(ipv4(BODY, A4, B4, total=0)[:30], length=49)]
    assert read(IPV4, packets) == ([(0, BODY[:10], 29)], {})
    packets = [Captured(ipv6(BODY, A6, B6)[:50], length=69)]
    assert read(IPV6, packets) == ([(0, BODY[:10], 29)], {})


def test_ipv4_what_is_counted() -> None:
    packets = [
        ipv4(BODY, A4, B4, protocol=17),
        ipv4(BODY, A4, B4, fragment=0x2000),
        ipv4(BODY, A4, B4, fragment=0x2001),
        ipv4(BODY, A4, B4, fragment=0x0001),
        ipv4(BODY, A4, B4, protocol=250),
        ipv4(BODY, A4, B4)[:19],
        b"\x55" + ipv4(BODY, A4, B4)[1:],
        b"\x44" + ipv4(BODY, A4, B4)[1:],
        ipv4(BODY, A4, B4, total=19),
        b"",
    ]
    found, counted = read(IPV4, packets)
    assert found == []
    assert counted == {"udp": 1, "fragment": 3, "ip protocol 250": 1, "cut header": 2, "bad ip header": 3}


FRAGMENT_ALONE = (44, b"\0\0\0\0\0\0\7")  # an atomic fragment: all that there is
FRAGMENT_FIRST = (44, b"\0\0\1\0\0\0\7")
FRAGMENT_LATER = (44, b"\0\0\x09\x12\x34\x56\x78")
HOP_BY_HOP = (0, b"\0\1\4\0\0\0\0")
ROUTING = (43, b"\2\4\0" + bytes(20))
AUTHENTICATION = (51, b"\4\0\0" + bytes(20))
DESTINATION = (60, b"\0\1\4\0\0\0\0")


@pytest.mark.parametrize(
    "extensions",
    [
        [],
        [HOP_BY_HOP],
        [ROUTING, DESTINATION],
        [AUTHENTICATION],
        [HOP_BY_HOP, ROUTING, FRAGMENT_ALONE, AUTHENTICATION, DESTINATION],
    ],
)
def test_ipv6_extensions(extensions: list[tuple[int, bytes]]) -> None:
    packet = ipv6(BODY, A6, B6, extensions=extensions)
    assert read(IPV6, [packet, packet + b"trailer"]) == ([(0, BODY, 29), (1, BODY, 29)], {})
    found, counted = read(IPV6, [ipv6(BODY, A6, B6, extensions=extensions, protocol=58)])
    assert (found, counted) == ([], {"icmp": 1})
    for size in range(len(packet) - len(BODY)):
        found, counted = read(IPV6, [packet[:size]])
        if found:  # the last extension header is known by its first bytes: the TCP stage finds nothing there
            assert (found[0][1], counted) == (b"", {})
        else:
            assert counted == {"cut header": 1}


def test_ipv6_what_is_counted() -> None:
    packets = [
        ipv6(BODY, A6, B6, protocol=17),
        ipv6(BODY, A6, B6, extensions=[FRAGMENT_LATER]),
        ipv6(BODY, A6, B6, protocol=59),
        ipv6(BODY, A6, B6)[:39],
        b"\x40" + ipv6(BODY, A6, B6)[1:],
        ipv6(b"", A6, B6, extensions=[HOP_BY_HOP])[:46],
    ]
    found, counted = read(IPV6, packets)
    assert found == []
    assert counted == {"udp": 1, "fragment": 1, "ip protocol 59": 1, "cut header": 2, "bad ip header": 1}


@settings(max_examples=examples(200), deadline=None)
@given(
    data=st.binary(max_size=60),
    version=st.sampled_from([IPV4, IPV6]),
    extra=st.integers(0, 100),
)
def test_any_bytes(data: bytes, version: int, extra: int) -> None:
    data = bytes([0x45 if version == IPV4 else 0x60]) + data
    _, found, fragments, counted = headers(version, [Captured(data, length=len(data) + extra)])
    parts = 0 if fragments is None else len(fragments.packets.rows)
    assert len(found.rows) + parts + counted.total() == 1
    assert np.all(found.rows.end <= 16 + len(data))


def test_ipv4_fragments() -> None:
    packets = [
        ipv4(BODY, A4, B4, fragment=0x4000),  # don't fragment
        ipv4(BODY, A4, B4, fragment=0x2000),  # more follow
        ipv4(BODY, A4, B4, protocol=17, fragment=0x0003) + b"trailer",
    ]
    window, found, fragments, _ = headers(IPV4, packets)
    assert contents(window, found.rows) == [(0, BODY, 29)]
    assert fragments is not None
    assert contents(window, fragments.packets.rows) == [(1, BODY, 29), (2, BODY, 29)]
    assert fragments.packets.protocol.tolist() == [6, 17]
    assert fragments.identification.tolist() == [0x106, 0x111]  # number 1 and the protocol
    assert (fragments.start.tolist(), fragments.more.tolist()) == ([0, 24], [True, False])


def test_ipv6_fragments() -> None:
    packets = [
        ipv6(BODY, A6, B6),
        ipv6(BODY, A6, B6, extensions=[HOP_BY_HOP, FRAGMENT_FIRST]),
        ipv6(BODY, A6, B6, extensions=[FRAGMENT_LATER]) + b"trailer",
    ]
    window, found, fragments, _ = headers(IPV6, packets)
    assert contents(window, found.rows) == [(0, BODY, 29)]
    assert fragments is not None
    assert contents(window, fragments.packets.rows) == [(1, BODY, 29), (2, BODY, 29)]
    assert fragments.packets.protocol.tolist() == [6, 6]
    assert fragments.identification.tolist() == [7, 0x12345678]
    assert (fragments.start.tolist(), fragments.more.tolist()) == ([0, 8], [True, True])


def test_ipv4_has_no_extensions_of_ipv6_whatever_lies_beside() -> None:
    authentication = ipv4(b"\6\4\0\0" + bytes(20) + BODY, A4, B4, protocol=51)
    other = ipv4(b"\6\0" + bytes(6) + BODY, A4, B4, protocol=0)
    behind = ipv4(b"\0\4\0\0" + bytes(20) + b"\6\0" + bytes(6) + BODY, A4, B4, protocol=51)
    for packets in ([other], [authentication, other], [authentication, other, behind]):
        _, found, _, counted = headers(IPV4, packets)
        assert found.protocol.tolist() == [*[6] * (len(packets) > 1), 0, *[0] * (len(packets) > 2)]
        assert counted == {}


def test_ipv4_authentication_header() -> None:
    header = b"\6\4\0\0" + bytes(20)  # TCP follows, 24 bytes
    assert read(IPV4, [ipv4(header + BODY, A4, B4, protocol=51)]) == ([(0, BODY, 29)], {})
