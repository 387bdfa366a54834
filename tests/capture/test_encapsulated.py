"""A bundled capture put into tunnels, fragments and other link layers: the same messages come out."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.capture import CaptureReader, PacketBlock
from tests.builders import (
    Captured,
    ethernet,
    gre,
    ipv4,
    ipv4_fragments,
    ipv6_fragments,
    mpls,
    pcap_file,
    pppoe,
    udp,
    vxlan,
)
from tests.decoded import decode

CHAIN = Path(__file__).resolve().parent.parent.parent / "captures" / "basic_chain.pcap"
OUTER_4, OUTER_6 = ("192.168.0.1", "192.168.0.2"), ("fe80::1", "fe80::2")

Wrap = Callable[[bytes, int], list[bytes]]
"""(an IP packet, its number) → frames."""


def packets() -> list[Captured]:
    """The IP packets of the bundled capture."""
    found = []
    with CaptureReader(str(CHAIN)) as reader:
        for block in reader.blocks():
            assert isinstance(block, PacketBlock)
            assert set(block.link_type.tolist()) == {1}
            columns = (block.offset - block.window_offset, block.caplen, block.time_ns)
            for at, size, time_ns in zip(*(column.tolist() for column in columns), strict=True):
                found.append(Captured(block.window[at + 14 : at + size], time_ns))
    return found


def tunnel(packet: bytes) -> bytes:
    return udp(vxlan(ethernet(packet)), 4789)


def cuts(body: bytes, size: int) -> list[int]:
    return list(range(size, len(body), size))


def fragmented_vxlan(packet: bytes, number: int) -> list[bytes]:
    """As a network has it whose packets are too small for the tunnel: the last part is sent first."""
    body = tunnel(packet)
    parts = ipv4_fragments(body, *OUTER_4, cuts(body, 1400), number=number, protocol=17)
    return [ethernet(part) for part in reversed(parts)]


def fragments_in_vxlan(packet: bytes, number: int) -> list[bytes]:
    body = packet[20:]
    parts = ipv4_fragments(body, "127.0.0.1", "127.0.0.1", cuts(body, 480), number=number)
    return [ethernet(ipv4(tunnel(part), *OUTER_4, protocol=17)) for part in parts]


def fragmented_ipv6_tunnel(packet: bytes, number: int) -> list[bytes]:
    parts = ipv6_fragments(packet, *OUTER_6, cuts(packet, 1200), number=number, protocol=4)
    return [ethernet(part) for part in parts]


def shuffled(packet: bytes, number: int) -> list[bytes]:
    frames = fragmented_vxlan(packet, number)
    random.Random(number).shuffle(frames)
    return [frame for frame in frames for _ in range(2)]  # and each seen twice


WRAPS: dict[str, tuple[int, Wrap]] = {
    "VXLAN": (1, lambda packet, _: [ethernet(ipv4(tunnel(packet), *OUTER_4, protocol=17))]),
    "inside and outside": (
        1,
        lambda packet, _: [ethernet(packet), ethernet(ipv4(tunnel(packet), *OUTER_4, protocol=17))],
    ),
    "GRE": (1, lambda packet, _: [ethernet(ipv4(gre(packet, key=True), *OUTER_4, protocol=47))]),
    "MPLS": (1, lambda packet, _: [ethernet(mpls(packet), kind=0x8847)]),
    "PPPoE": (1, lambda packet, _: [ethernet(pppoe(packet), kind=0x8864, tags=[(0x88A8, 1), (0x8100, 2)])]),
    "fragments of VXLAN": (1, fragmented_vxlan),
    "fragments in VXLAN": (1, fragments_in_vxlan),
    "fragments of IPv6": (1, fragmented_ipv6_tunnel),
    "fragments, shuffled and twice": (1, shuffled),
}


def said(path: Path) -> list[dict[str, Any]]:
    """Messages without what says where in the file they were."""
    places = ("packet", "capture", "offset", "location")
    return [
        {key: value for key, value in message.items() if key not in places}
        for message in decode(path).messages
    ]


@pytest.mark.parametrize("name", WRAPS)
def test_the_same_messages(name: str, tmp_path: Path) -> None:
    link_type, wrap = WRAPS[name]
    frames = [
        Captured(frame, one.time_ns)
        for number, one in enumerate(packets())
        for frame in wrap(one.data, number)
    ]
    path = tmp_path / "capture"
    path.write_bytes(pcap_file(frames, link_type=link_type))
    found, expected = said(path), said(CHAIN)
    assert len(expected) == 24
    assert found == expected
    assert decode(path).problems() == []
