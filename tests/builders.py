"""The other side of the capture and header stages: frames, capture files and blocks made from plain values.

A frame is made from the inside out. `packet` does it in one call:

    packet(b"hello", "10.0.0.1:5000", "10.0.0.2:80", sequence=1000)            # Ethernet, IPv4
    packet(b"", "[::1]:5000", "[::1]:80", flags=SYN, link_type=101)             # raw IP, IPv6
    link_frame(113, ipv4(tcp(b"x", 1, 2), "10.0.0.1", "10.0.0.2"))              # the same by hand: cooked

Files take `Captured` packets (bytes, time, original length):

    pcap_file([Captured(frame, time_ns=5)], order=">", nanoseconds=False)       # all variants of classic pcap
    pcapng_file([Captured(frame)])                                              # one section, one interface
    section(">") + interface(">", link_type=1, resolution=9) + enhanced(">", frame) + simple(">", frame)

Blocks without a file: `packet_block([frame, …])` is input for `Segmenter`; for the TCP stage
`segment_block([Segment(flow=0, sequence=1000, payload=b"hello"), …])` lays the payloads out in one window,
20 bytes apart, so that `offset` is different from everything else.

Checksums are left 0, as offload leaves them.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.capture.block import PacketBlock, PacketHeads, SegmentBlock, as_int64

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32


# --- frames ---


def tcp(
    payload: bytes,
    source_port: int,
    destination_port: int,
    *,
    sequence: int = 0,
    acknowledgment: int = 0,
    flags: int = ACK,
    options: bytes = b"",
) -> bytes:
    """A TCP header (options padded to four bytes) and its payload."""
    options += bytes(-len(options) % 4)
    size = 5 + len(options) // 4
    header = struct.pack(
        ">HHIIBBHHH",
        source_port,
        destination_port,
        sequence & 0xFFFFFFFF,
        acknowledgment & 0xFFFFFFFF,
        size << 4,
        flags,
        0xFFFF,
        0,
        0,
    )
    return header + options + payload


def ipv4(
    body: bytes,
    source: str,
    destination: str,
    *,
    protocol: int = 6,
    options: bytes = b"",
    total: int | None = None,
    fragment: int = 0,
) -> bytes:
    """An IPv4 packet; `total` overrides the total length, `fragment` is the field of flags and offset."""
    options += bytes(-len(options) % 4)
    size = 20 + len(options)
    if total is None:
        total = size + len(body)
        total = total if total < 0x10000 else 0  # as Linux does it for big frames
    return (
        struct.pack(">BBHHHBBH", 0x40 | size // 4, 0, total, 1, fragment, 64, protocol, 0)
        + ipaddress.IPv4Address(source).packed
        + ipaddress.IPv4Address(destination).packed
        + options
        + body
    )


def ipv6(
    body: bytes,
    source: str,
    destination: str,
    *,
    protocol: int = 6,
    extensions: Sequence[tuple[int, bytes]] = (),
    payload_length: int | None = None,
) -> bytes:
    """An IPv6 packet. An extension is (its number, its bytes without the first, the next header)."""
    numbers = [number for number, _ in extensions] + [protocol]
    chain = b"".join(
        bytes([following]) + rest for (_, rest), following in zip(extensions, numbers[1:], strict=True)
    )
    if payload_length is None:
        payload_length = len(chain) + len(body)
        payload_length = payload_length if payload_length < 0x10000 else 0
    return (
        struct.pack(">IHBB", 0x60000000, payload_length, numbers[0], 64)
        + ipaddress.IPv6Address(source).packed
        + ipaddress.IPv6Address(destination).packed
        + chain
        + body
    )


def ethernet(body: bytes, *, kind: int | None = None, tags: Sequence[tuple[int, int]] = ()) -> bytes:
    """An Ethernet frame; `tags` are (EtherType of the tag, VLAN id), outermost first."""
    frame = bytes.fromhex("020000000002 020000000001")
    for tag, vlan in tags:
        frame += struct.pack(">HH", tag, vlan)
    return frame + struct.pack(">H", _kind(body) if kind is None else kind) + body


def link_frame(link_type: int, body: bytes, order: str = "<") -> bytes:
    """An IP packet in the frame of a link type; `order` is the capturing machine's, which NULL depends on."""
    if link_type == 1:
        return ethernet(body)
    if link_type in (9, 50):
        return ppp(body, framed=True)
    if link_type in (149, 258):  # Apple's header: its size, 1 for a packet, the link type of what follows
        return struct.pack("<III96x", 108, 1, 1) + ethernet(body)
    if link_type == 113:  # packet type, ARPHRD, address length, address, protocol
        return struct.pack(">HHH8sH", 0, 1, 6, b"\2\0\0\0\0\1", _kind(body)) + body
    if link_type == 276:  # protocol, 0, interface, ARPHRD, packet type, address length, address
        return struct.pack(">HHIHBB8s", _kind(body), 0, 2, 1, 0, 6, b"\2\0\0\0\0\1") + body
    if link_type in (0, 108):
        family = 2 if _kind(body) == 0x0800 else 30
        return struct.pack((order if link_type == 0 else ">") + "I", family) + body
    if link_type in (12, 14, 101, 228, 229):
        return body
    if link_type in _LINK_HEADERS:
        return _LINK_HEADERS[link_type](body)
    raise ValueError(f"no builder for link type {link_type}")


def ppp(body: bytes, *, framed: bool = False, short: bool = False) -> bytes:
    """A PPP frame; `framed` with address and control, `short` with one byte of protocol number."""
    protocol = 0x57 if _kind(body) == 0x86DD else 0x21
    return (b"\xff\x03" if framed else b"") + protocol.to_bytes(1 if short else 2, "big") + body


def pppoe(body: bytes) -> bytes:
    """A PPPoE session header (version and type, code, session, length) and PPP; EtherType 0x8864."""
    frame = ppp(body)
    return struct.pack(">BBHH", 0x11, 0, 7, len(frame)) + frame


def mpls(body: bytes, labels: Sequence[int] = (16,)) -> bytes:
    """A stack of MPLS labels (label, bottom of the stack, time to live); EtherType 0x8847."""
    last = len(labels) - 1
    return b"".join(struct.pack(">I", n << 12 | (at == last) << 8 | 64) for at, n in enumerate(labels)) + body


def snap(body: bytes, kind: int | None = None) -> bytes:
    """An 802.2 header with an EtherType in SNAP."""
    return b"\xaa\xaa\x03\0\0\0" + struct.pack(">H", _kind(body) if kind is None else kind) + body


def wlan(body: bytes) -> bytes:
    """An 802.11 QoS data frame to the distribution system."""
    addresses = bytes.fromhex("020000000001" * 3)
    return struct.pack("<BBH", 0x88, 1, 0) + addresses + struct.pack("<HH", 5 << 4, 0) + body


def radiotap(frame: bytes) -> bytes:
    """A radiotap header with the field of flags, none of which is set."""
    return struct.pack("<BBHIB", 0, 0, 9, 2, 0) + frame


_LINK_HEADERS: dict[int, Callable[[bytes], bytes]] = {
    51: pppoe,
    104: lambda body: b"\x0f\0" + struct.pack(">H", _kind(body)) + body,
    105: lambda body: wlan(snap(body)),
    109: lambda body: struct.pack("<III", 2 if _kind(body) == 0x0800 else 24, 1, 0) + body,
    119: lambda body: struct.pack("<II16s120x", 0x44, 144, b"wlan0") + wlan(snap(body)),
    127: lambda body: radiotap(wlan(snap(body))),
    138: lambda body: bytes(16) + struct.pack(">H", _kind(body)) + body,
    163: lambda body: struct.pack(">II56x", 0x80211001, 64) + wlan(snap(body)),
    192: lambda body: struct.pack("<BBHI", 0, 0, 8, 105) + wlan(snap(body)),
    226: lambda body: struct.pack(">BBHIIIII", 1, 2, 4, len(body), 1, 1, 0, 0) + body,
}


def gre(
    body: bytes,
    kind: int | None = None,
    *,
    checksum: bool = False,
    key: bool = False,
    sequence: bool = False,
    version: int = 0,
    acknowledgment: bool = False,
    routing: bool = False,
) -> bytes:
    """A GRE header; behind IP it is protocol 47."""
    flags = checksum << 15 | routing << 14 | key << 13 | sequence << 12 | acknowledgment << 7 | version
    words = (checksum or routing) + key + sequence + acknowledgment
    if version == 1:  # the key is the length of the payload and a number of the call
        more = struct.pack(">HH", len(body), 7) + bytes(4 * (words - 1))
    else:
        more = bytes(4 * words)
    return struct.pack(">HH", flags, _kind(body) if kind is None else kind) + more + body


def udp(body: bytes, port: int, source_port: int = 50000) -> bytes:
    """A UDP header; behind IP it is protocol 17."""
    return struct.pack(">HHHH", source_port, port, len(body) + 8, 0) + body


def vxlan(frame: bytes, *, flags: int = 8) -> bytes:
    """A VXLAN header for network 5 and an Ethernet frame; UDP port 4789."""
    return struct.pack(">BxxxI", flags, 5 << 8) + frame


def geneve(body: bytes, kind: int = 0x6558, *, options: bytes = b"", version: int = 0) -> bytes:
    """A Geneve header for network 5 (options padded to four bytes); UDP port 6081."""
    options += bytes(-len(options) % 4)
    return struct.pack(">BBHI", version << 6 | len(options) // 4, 0, kind, 5 << 8) + options + body


def ipv4_fragments(
    body: bytes, source: str, destination: str, cuts: Sequence[int], *, number: int = 1, protocol: int = 6
) -> list[bytes]:
    """What is behind an IPv4 header, cut at these places (multiples of 8), as packets."""
    edges = [0, *cuts, len(body)]
    packets = []
    for start, end in pairwise(edges):
        more = 0x2000 if end < len(body) else 0
        one = ipv4(body[start:end], source, destination, protocol=protocol, fragment=more | start // 8)
        packets.append(one[:4] + struct.pack(">H", number) + one[6:])
    return packets


def ipv6_fragments(
    body: bytes, source: str, destination: str, cuts: Sequence[int], *, number: int = 1, protocol: int = 6
) -> list[bytes]:
    """The same with IPv6."""
    edges = [0, *cuts, len(body)]
    packets = []
    for start, end in pairwise(edges):
        header = struct.pack(">xHI", start | (end < len(body)), number)
        packets.append(
            ipv6(body[start:end], source, destination, protocol=protocol, extensions=[(44, header)])
        )
    return packets


def packet(
    payload: bytes,
    source: str = "10.0.0.1:5000",
    destination: str = "10.0.0.2:6000",
    *,
    sequence: int = 0,
    acknowledgment: int = 0,
    flags: int = ACK,
    options: bytes = b"",
    link_type: int = 1,
) -> bytes:
    """A whole frame with one TCP segment; endpoints as `ip:port` or `[v6]:port`."""
    source_host, source_port = _endpoint(source)
    destination_host, destination_port = _endpoint(destination)
    segment = tcp(
        payload,
        source_port,
        destination_port,
        sequence=sequence,
        acknowledgment=acknowledgment,
        flags=flags,
        options=options,
    )
    wrap = ipv6 if ":" in source_host else ipv4
    return link_frame(link_type, wrap(segment, source_host, destination_host))


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _kind(body: bytes) -> int:
    return 0x86DD if body and body[0] >> 4 == 6 else 0x0800


# --- files ---


class Captured(Struct, frozen=True):
    """A packet as a capture file holds it."""

    data: bytes
    time_ns: int = 0
    length: int | None = None
    """Original length, where the packet was cut."""

    @property
    def original(self) -> int:
        """Original length."""
        return len(self.data) if self.length is None else self.length


def pcap_file(
    packets: Iterable[Captured],
    *,
    order: str = "<",
    nanoseconds: bool = True,
    modified: bool = False,
    link_type: int = 1,
    network: int | None = None,
    snap_length: int = 1 << 18,
    version: tuple[int, int] = (2, 4),
) -> bytes:
    """A classic pcap; `modified` has 24-byte record headers, `network` overrides that whole field."""
    magic = 0xA1B2CD34 if modified else 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    unit = 1 if nanoseconds and not modified else 1000
    out = [
        struct.pack(
            order + "IHHiIII",
            magic,
            *version,
            0,
            0,
            snap_length,
            network if network is not None else link_type,
        )
    ]
    for one in packets:
        seconds, rest = divmod(one.time_ns, 1_000_000_000)
        out.append(struct.pack(order + "IIII", seconds, rest // unit, len(one.data), one.original))
        if modified:
            out.append(struct.pack(order + "IHBB", 2, 0x0800, 0, 0))
        out.append(one.data)
    return b"".join(out)


def pcapng_block(order: str, kind: int, body: bytes) -> bytes:
    """Any block: the body is padded to four bytes."""
    body += bytes(-len(body) % 4)
    size = len(body) + 12
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def section(order: str = "<") -> bytes:
    """A section header without a section length."""
    return pcapng_block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(
    order: str = "<",
    *,
    link_type: int = 1,
    snap_length: int = 0,
    resolution: int | None = None,
    offset_s: int | None = None,
) -> bytes:
    """An interface description; `resolution` is the byte of if_tsresol (high bit: powers of two)."""
    options = struct.pack(order + "HH4s", 2, 3, b"lo0")  # if_name, to be skipped
    if resolution is not None:
        options += struct.pack(order + "HHB3x", 9, 1, resolution)
    if offset_s is not None:
        options += struct.pack(order + "HHq", 14, 8, offset_s)
    options += struct.pack(order + "HH", 0, 0)
    return pcapng_block(order, 1, struct.pack(order + "HHI", link_type, 0, snap_length) + options)


def enhanced(
    order: str, data: bytes, *, ticks: int = 0, interface_id: int = 0, length: int | None = None
) -> bytes:
    """An enhanced packet block with a comment."""
    original = len(data) if length is None else length
    body = struct.pack(order + "IIIII", interface_id, ticks >> 32, ticks & 0xFFFFFFFF, len(data), original)
    comment = struct.pack(order + "HH4sHH", 1, 4, b"note", 0, 0)
    return pcapng_block(order, 6, body + data + bytes(-len(data) % 4) + comment)


def simple(order: str, data: bytes, *, length: int | None = None) -> bytes:
    """A simple packet block."""
    return pcapng_block(order, 3, struct.pack(order + "I", len(data) if length is None else length) + data)


def obsolete(order: str, data: bytes, *, ticks: int = 0, interface_id: int = 0, drops: int = 0) -> bytes:
    """A packet block of the kind that enhanced ones replaced."""
    fields = (interface_id, drops, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return pcapng_block(order, 2, struct.pack(order + "HHIIII", *fields) + data)


def pcapng_file(packets: Iterable[Captured], *, order: str = "<", link_type: int = 1) -> bytes:
    """One section with one interface that counts nanoseconds."""
    blocks = [section(order), interface(order, link_type=link_type, resolution=9)]
    blocks += [enhanced(order, one.data, ticks=one.time_ns, length=one.original) for one in packets]
    return b"".join(blocks)


# --- blocks ---


def packet_block(
    frames: Sequence[bytes | Captured],
    *,
    link_type: int | Sequence[int] = 1,
    capture: int = 0,
    first_number: int = 1,
    window_offset: int = 1000,
) -> PacketBlock:
    """A block as a reader gives it, with 16 bytes before each frame."""
    packets = [one if isinstance(one, Captured) else Captured(one) for one in frames]
    window, offsets = bytearray(), []
    for one in packets:
        window += b"\xee" * 16
        offsets.append(window_offset + len(window))
        window += one.data
    types = [link_type] * len(packets) if isinstance(link_type, int) else link_type
    return PacketBlock(
        capture=capture,
        first_number=first_number,
        window=bytes(window),
        window_offset=window_offset,
        offset=as_int64(offsets),
        caplen=as_int64([len(one.data) for one in packets]),
        length=as_int64([one.original for one in packets]),
        time_ns=as_int64([one.time_ns for one in packets]),
        link_type=np.array(types, dtype=np.uint16),
    )


def by_heads(block: PacketBlock, size: int) -> PacketBlock:
    """The block as a reader gives it that reads so many bytes of each packet at first."""
    window, at = bytearray(), []
    for start, caplen in zip(
        (block.offset - block.window_offset).tolist(), block.caplen.tolist(), strict=True
    ):
        window += b"\xee" * 16
        at.append(len(window))
        window += block.window[start : start + min(caplen, size)]
    heads = PacketHeads(as_int64(at), np.minimum(block.caplen, size), lambda: block)
    return replace(block, window=bytes(window), window_offset=0, heads=heads)


class Segment(Struct, frozen=True, kw_only=True):
    """One row of a segment block."""

    flow: int
    sequence: int
    payload: bytes = b""
    acknowledgment: int = 0
    flags: int = ACK
    length: int | None = None
    """Payload bytes on the wire, where they were cut."""
    packet: int | None = None
    """Packet number; by default counted on from 1."""
    time_ns: int | None = None
    """By default 1000 times the packet number."""


def segment_block(
    segments: Sequence[Segment], *, capture: int = 0, window_offset: int = 1000, first_number: int = 1
) -> SegmentBlock:
    """A block as the segmenter gives it."""
    window, offsets = bytearray(), []
    for one in segments:
        window += b"\xee" * 20
        offsets.append(window_offset + len(window))
        window += one.payload
    packets = [first_number + row if one.packet is None else one.packet for row, one in enumerate(segments)]
    return SegmentBlock(
        capture=capture,
        window=bytes(window),
        window_offset=window_offset,
        packet=as_int64(packets),
        time_ns=as_int64(
            [
                1000 * number if one.time_ns is None else one.time_ns
                for number, one in zip(packets, segments, strict=True)
            ]
        ),
        flow=as_int64([one.flow for one in segments]),
        sequence=as_int64([one.sequence & 0xFFFFFFFF for one in segments]),
        acknowledgment=as_int64([one.acknowledgment & 0xFFFFFFFF for one in segments]),
        flags=np.array([one.flags for one in segments], dtype=np.uint8),
        offset=as_int64(offsets),
        captured=as_int64([len(one.payload) for one in segments]),
        length=as_int64([len(one.payload) if one.length is None else one.length for one in segments]),
    )
