"""Packets to TCP segments: link layer, IP and TCP headers, over whole blocks of packets.

In: `PacketBlock`s of one capture in file order. Out: one `SegmentBlock` for each, whose rows are its TCP
packets (pure acknowledgments too), in file order; payloads stay in the file, as offset and length. Of a
`TcpBlock`, whose headers were read before, only the directions are entered into the table of flows.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpcinspect.capture.block import Direction, Int64s, PacketBlock, TcpBlock, as_int64
from rpcinspect.wire.ip import NETWORKS, IpPackets
from rpcinspect.wire.link import ETHERTYPES, LINKS, Rows, gather, network_headers

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """One end of a TCP connection."""

    host: str
    """Address as text, IPv6 in its short form without brackets."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """One direction between two endpoints (not of one connection: ports are used again)."""

    source: Endpoint
    destination: Endpoint

    def __str__(self) -> str:
        return f"{self.source}>{self.destination}"

    @property
    def reversed(self) -> Flow:
        """The other direction."""
        return Flow(self.destination, self.source)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentBlock:
    """TCP segments of one packet block, in file order. All columns have the same length m."""

    capture: int
    window: bytes
    """The bytes of the file that hold every payload of this block; `window[0]` is at `window_offset`."""
    window_offset: int
    packet: Int64s
    """Packet number in its file, from 1."""
    time_ns: Int64s
    flow: Int64s
    """Index into `Segmenter.flows`."""
    sequence: Int64s
    """Sequence number of the header, 0..2³²−1 (of the SYN itself where SYN is set)."""
    acknowledgment: Int64s
    """Acknowledgment number, 0..2³²−1; without meaning where ACK is not set."""
    flags: NDArray[np.uint8]
    """FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32."""
    offset: Int64s
    """File offset of the payload's first byte."""
    captured: Int64s
    """Payload bytes that are in the file."""
    length: Int64s
    """Payload bytes on the wire by the IP length: more than `captured` where the snap length cut them;
    padding and trailers of the link layer never count."""

    def __len__(self) -> int:
        return len(self.packet)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Segments of one link type and IP version; positions count from the window."""

    row: Int64s
    flow: Int64s
    sequence: Int64s
    acknowledgment: Int64s
    flags: NDArray[np.uint8]
    payload: Int64s
    captured: Int64s
    length: Int64s


class Segmenter:
    """The stage for one capture file; keeps only the table of flows and counts between blocks."""

    def __init__(self) -> None:
        self.flows: list[Flow] = []
        """Every direction seen; `SegmentBlock.flow` is an index of this list."""
        self.reverse: list[int] = []
        """For each flow the index of the opposite one, -1 while that has not been seen."""
        self.other: dict[str, int] = {}
        """Packets that gave no segment, by a short reason (`udp`, `arp`, `ip fragment`, `link type 105`)."""
        self._indexes: dict[bytes, int] = {}

    def feed(self, block: PacketBlock | TcpBlock) -> SegmentBlock:
        """Segments of one block of packets."""
        if isinstance(block, TcpBlock):
            return self._numbered(block)
        parts: list[_Part] = []
        packets = Rows.of_block(block)
        for link_type in _distinct_numbers(block.link_type):
            rows = packets.keep(block.link_type == link_type)
            link = LINKS.get(link_type)
            if link is None:
                self._count(f"link type {link_type}", len(rows))
                continue
            network, kind = network_headers(block.window, rows, link)
            self._count("cut header", len(rows) - len(network))
            for number in _distinct_numbers(kind):
                chosen = network.keep(kind == number)
                read = NETWORKS.get(number)
                if read is None:
                    self._count(ETHERTYPES.get(number, f"ethertype 0x{number:04x}"), len(chosen))
                else:
                    parts.append(self._tcp(block.window, read(block.window, chosen, self._count)))
        return _joined(block, parts)

    def finish(self) -> None:
        """Nothing is kept back by this stage."""

    def _count(self, reason: str, packets: int) -> None:
        if packets:
            self.other[reason] = self.other.get(reason, 0) + packets

    def _tcp(self, window: bytes, packets: IpPackets) -> _Part:
        """Read the TCP headers of these packets."""
        whole = packets.rows.end - packets.rows.at >= 20
        self._count("cut header", int((~whole).sum()))
        packets = packets.keep(whole)
        rows = packets.rows
        header = gather(window, rows.at, ">u4", 5)
        control = header[:, 3].astype(np.int64)  # header size, flags and the receive window
        size = (control >> 28) * 4
        good = (size >= 20) & (rows.at + size <= rows.wire)
        if not good.all():
            self._count("bad tcp header", int((~good).sum()))
            packets, header, control, size = packets.keep(good), header[good], control[good], size[good]
            rows = packets.rows
        payload = rows.at + size
        length = rows.wire - payload
        return _Part(
            row=rows.row,
            flow=self._flow_indexes((*packets.addresses, header[:, 0].astype(np.uint64))),
            sequence=header[:, 1].astype(np.int64),
            acknowledgment=header[:, 2].astype(np.int64),
            flags=(control >> 16 & 0x3F).astype(np.uint8),
            payload=payload,
            captured=np.clip(rows.end - payload, 0, length),
            length=length,
        )

    def _flow_indexes(self, columns: tuple[NDArray[np.uint64], ...]) -> Int64s:
        """Flow index of each row; the columns are the addresses and the two ports in one number."""
        first, group = distinct_rows(columns)
        keys = np.stack([column[first] for column in columns], axis=1).astype(">u8").tobytes()
        size = 8 * len(columns)
        indexes = []
        for at in range(0, len(keys), size):
            key = keys[at : at + size]
            known = self._indexes.get(key)
            indexes.append(self._new_flow(key) if known is None else known)
        return as_int64(indexes)[group]

    def _numbered(self, block: TcpBlock) -> SegmentBlock:
        """Segments that were read elsewhere, their directions as indexes of `flows`."""
        for reason, packets in block.other.items():
            self._count(reason, packets)
        seen, column = np.unique(block.direction, return_inverse=True)
        indexes = []
        for direction in seen.tolist():
            key = _key(block.directions[direction])
            known = self._indexes.get(key)
            indexes.append(self._new_flow(key) if known is None else known)
        return SegmentBlock(
            capture=block.capture,
            window=block.window,
            window_offset=block.window_offset,
            packet=block.packet,
            time_ns=block.time_ns,
            flow=as_int64(indexes)[column],
            sequence=block.sequence,
            acknowledgment=block.acknowledgment,
            flags=block.flags,
            offset=block.offset,
            captured=block.captured,
            length=block.length,
        )

    def _new_flow(self, key: bytes) -> int:
        addresses, half = key[:-8], len(key) // 2 - 4
        source, destination = addresses[:half], addresses[half:]
        ports = key[-4:-2], key[-2:]
        index = len(self.flows)
        self.flows.append(Flow(_endpoint(source, ports[0]), _endpoint(destination, ports[1])))
        self._indexes[key] = index
        back = self._indexes.get(destination + source + bytes(4) + ports[1] + ports[0], -1)
        self.reverse.append(back)
        if back >= 0:
            self.reverse[back] = index
        return index


def _key(direction: Direction) -> bytes:
    """As `_flow_indexes` has it: addresses, then the ports in a number of eight bytes."""
    ports = direction.source_port << 16 | direction.destination_port
    return direction.source + direction.destination + ports.to_bytes(8, "big")


def _endpoint(address: bytes, port: bytes) -> Endpoint:
    if len(address) == 4:
        host = ".".join(map(str, address))
    else:
        host = str(IPv6Address(address))
    return Endpoint(host, int.from_bytes(port, "big"))


def distinct_rows(columns: tuple[NDArray[np.uint64], ...]) -> tuple[Int64s, Int64s]:
    """Which rows of a table are different: the first row of each kind, and for every row its kind.

    Linear where few kinds are many rows: a table of 65,536 slots by hash; only kinds that share a slot with
    another are sorted.
    """
    rows = np.arange(len(columns[0]), dtype=np.int64)
    mixed = np.zeros(len(rows), dtype=np.uint64)
    for column in columns:
        mixed = (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
    slot = (mixed & np.uint64(0xFFFF)).astype(np.int64)
    table = np.empty(1 << 16, dtype=np.int64)
    table[slot[::-1]] = rows[::-1]  # the last assignment stays: the first row of the slot
    model = table[slot]
    differs = np.zeros(len(rows), dtype=np.bool_)
    for column in columns:
        differs |= column[model] != column
    if differs.any():
        rest = np.flatnonzero(differs)
        keys = np.stack([column[rest] for column in columns], axis=1)
        whole = keys.view(f"V{8 * len(columns)}")[:, 0]
        _, first_of, kind = np.unique(whole, return_index=True, return_inverse=True)
        model[rest] = rest[first_of[kind]]
    first = np.flatnonzero(model == rows)
    number = np.empty(len(rows), dtype=np.int64)
    number[first] = np.arange(len(first))
    return first, number[model]


def _distinct_numbers(values: NDArray[np.uint16]) -> list[int]:
    """As np.unique, without sorting where all are the same, as they are in most blocks."""
    if len(values) and (values == values[0]).all():
        return [int(values[0])]
    return [int(value) for value in np.unique(values)]


def _joined(block: PacketBlock, parts: list[_Part]) -> SegmentBlock:
    """One block in file order from the parts; with one part and no tags it is in order already."""

    def column(name: str) -> NDArray[Any]:
        columns = [getattr(part, name) for part in parts]
        joined = np.concatenate(columns) if len(columns) > 1 else columns[0]
        return joined if order is None else joined[order]

    order = None
    if not parts:
        none = np.empty(0, dtype=np.int64)
        parts = [_Part(none, none, none, none, none.astype(np.uint8), none, none, none)]
    row = column("row")
    if (row[1:] < row[:-1]).any():
        order = np.argsort(row, kind="stable")
        row = row[order]
    return SegmentBlock(
        capture=block.capture,
        window=block.window,
        window_offset=block.window_offset,
        packet=row + block.first_number,
        time_ns=block.time_ns[row],
        flow=column("flow"),
        sequence=column("sequence"),
        acknowledgment=column("acknowledgment"),
        flags=column("flags"),
        offset=column("payload") + block.window_offset,
        captured=column("captured"),
        length=column("length"),
    )
