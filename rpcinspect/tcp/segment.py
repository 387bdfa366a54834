"""Packets to TCP segments: link layer, tunnels, IP and TCP headers, over whole blocks of packets.

In: `PacketBlock`s, file by file and in file order. Out: one `SegmentBlock` for each, whose rows are its TCP
packets (pure acknowledgments too), in file order; payloads stay in the file, as offset and length. Of
packets in packets the innermost counts. A segment that came in IP fragments is one row for each place where a
part of its payload lies, all with the number and time of the packet that completed it, as Wireshark has it.
Of a `TcpBlock`, whose headers were read before, only the directions are entered into the table of flows.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from rpcinspect.capture.block import (
    Direction,
    Int64s,
    PacketBlock,
    PacketHeads,
    SegmentBlock,
    TcpBlock,
    as_int64,
)
from rpcinspect.tcp.fragment import (
    Datagram,
    Fragment,
    FragmentPiece,
    Reassembly,
    SegmentColumns,
    lay_out,
    list_fragments,
)
from rpcinspect.tcp.ip import NETWORKS, PROTOCOLS, TCP, Count, Fragments, IpPackets, behind_extensions
from rpcinspect.tcp.link import ETHERTYPES, LINKS, MAX_NESTING, TUNNELS, network_headers, step_over_tags
from rpcinspect.tcp.rows import NO_TUNNEL, Kinds, Rows, distinct_numbers, distinct_rows, gather

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32


class Endpoint(Struct, frozen=True, order=True):
    """An end of a TCP connection."""

    host: str
    """Address as text, IPv6 in its short form without brackets."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Flow(Struct, frozen=True, order=True):
    """A direction between two endpoints. Several connections may share a flow: ports are used again."""

    source: Endpoint
    destination: Endpoint

    def __str__(self) -> str:
        return f"{self.source}>{self.destination}"

    @property
    def reversed(self) -> Flow:
        """The other direction."""
        return Flow(self.destination, self.source)


class _Found(Struct, frozen=True, eq=False):
    """Segments of one window so far."""

    parts: list[SegmentColumns] = field(default_factory=list)
    fragments: list[Fragments] = field(default_factory=list)
    tunnels: list[Int64s] = field(default_factory=list)
    """Rows with packets in packets."""


class Segmenter:
    """The stage; between blocks it keeps the table of flows, counts, and fragments that wait for others."""

    def __init__(self) -> None:
        self.flows: list[Flow] = []
        """Every direction seen; `SegmentBlock.flow` is an index of this list."""
        self.other: dict[str, int] = {}
        """Packets that gave no segment, by a short reason (`udp`, `arp`, `ip fragment`, `link type 105`)."""
        self._indexes: dict[bytes, int] = {}
        self._reassembly = Reassembly(self._count)

    def feed(self, block: PacketBlock | TcpBlock) -> SegmentBlock:
        """Returns the TCP segments of a block of packets."""
        if isinstance(block, TcpBlock):
            return self._numbered(block)
        if block.heads is not None:
            segments = self._by_heads(block, block.heads)
            if segments is not None:
                return segments
            block = block.heads.whole()
        found = self._read(block, self._count)
        if found.fragments:
            found.parts.extend(self._put_together(block, found.fragments))
        return _joined(block, found.parts, has_fragments=bool(found.fragments))

    def _read(self, block: PacketBlock, count: Count) -> _Found:
        """What is in packets that are whole, and the fragments."""
        found = _Found()
        packets = Rows.of_block(block)
        for link_type in distinct_numbers(block.link_type):
            rows = packets.keep(block.link_type == link_type)
            link = LINKS.get(link_type)
            if link is None:
                count(f"link type {link_type}", len(rows))
                continue
            network, kind = network_headers(block.window, rows, link)
            count("cut header", len(rows) - len(network))
            self._network(block.window, network, kind, found, count)
        return found

    def _by_heads(self, block: PacketBlock, heads: PacketHeads) -> SegmentBlock | None:
        """Returns the segments of packets of which only the first bytes are read; None if these are not
        enough: for fragments, tunnels, or a cut packet without a segment."""
        others: list[tuple[str, int]] = []
        found = self._read(block, lambda reason, packets: others.append((reason, packets)))
        if found.fragments:
            return None
        segments = _joined(block, found.parts)
        row = segments.packet - block.first_number
        cut = heads.seen < block.caplen
        untold = cut.copy()
        untold[row] = False
        for tunnel in found.tunnels:
            untold[tunnel] = cut[tunnel]
        if untold.any():
            return None
        for reason, packets in others:
            self._count(reason, packets)
        header = segments.offset - heads.at[row]
        captured = np.clip(block.caplen[row] - header, 0, segments.length)
        return replace(
            segments,
            window=b"",
            offset=block.offset[row] + header,
            captured=np.where(cut[row], captured, segments.captured),
        )

    def _count(self, reason: str, packets: int) -> None:
        if packets:
            total = self.other.pop(reason, 0) + packets
            if total:
                self.other[reason] = total

    def _network(
        self, window: bytes, rows: Rows, kind: Kinds, found: _Found, count: Count, depth: int = 0
    ) -> None:
        """Read the IP headers of these packets, and all that is behind them."""
        for number in distinct_numbers(kind):
            chosen = rows.keep(kind == number)
            read = NETWORKS.get(number)
            if read is None:
                count(ETHERTYPES.get(number, f"ethertype 0x{number:04x}"), len(chosen))
                continue
            packets, fragments = read(window, chosen, count)
            if fragments is not None:
                found.fragments.append(fragments)
            self._transport(window, packets, found, count, depth)

    def _transport(
        self, window: bytes, packets: IpPackets, found: _Found, count: Count, depth: int = 0
    ) -> None:
        """Read what is behind IP: TCP headers, or packets in these packets."""
        tcp = packets.protocol == TCP
        if not tcp.all():
            others = packets.keep(~tcp)
            packets = packets.keep(tcp)
            for protocol in distinct_numbers(others.protocol):
                chosen = others.rows.keep(others.protocol == protocol)
                name = PROTOCOLS.get(protocol, f"ip protocol {protocol}")
                tunnel = TUNNELS.get(protocol)
                if tunnel is None or depth >= MAX_NESTING:
                    count(name, len(chosen))
                    continue
                found.tunnels.append(chosen.row)
                inner, kind = tunnel(window, chosen)
                no_tunnel = kind == NO_TUNNEL
                if no_tunnel.any():
                    inside = ~no_tunnel
                    count(name, int(no_tunnel.sum()))
                    inner, kind, outside = inner.keep(inside), kind[inside], len(inner) - int(inside.sum())
                else:
                    outside = 0
                network, kind = step_over_tags(window, inner, kind)
                count("cut header", len(chosen) - outside - len(network))
                self._network(window, network, kind, found, count, depth + 1)
        found.parts.append(self._tcp(window, packets, count))

    # -- fragments: packets in a window of their own -----------------------------------------------------

    def _put_together(self, block: PacketBlock, fragments: list[Fragments]) -> list[SegmentColumns]:
        """Returns the segments of packets that these fragments complete; whole packets may be fragments of
        others."""
        window, base = block.window, block.window_offset

        def place(row: int, at: int, end: int, wire: int) -> tuple[int, list[FragmentPiece]]:
            return row, [FragmentPiece(0, wire - at, base + at, window[at:end])]

        parts: list[SegmentColumns] = []
        listed = list_fragments(block, fragments, place)
        for _ in range(MAX_NESTING):
            datagrams = list(self._reassembly.feed(block.capture, listed))
            listed = []
            kinds = {(datagram.whole, len(datagram.addresses)) for datagram in datagrams}
            for whole, columns in sorted(kinds):
                chosen = [d for d in datagrams if (d.whole, len(d.addresses)) == (whole, columns)]
                part, inner = self._read_datagrams(block, chosen, whole)
                parts.append(part)
                listed += inner
            if not listed:
                break
            listed.sort(key=attrgetter("row"))
        return parts

    def _read_datagrams(
        self, block: PacketBlock, datagrams: list[Datagram], whole: bool
    ) -> tuple[SegmentColumns, list[Fragment]]:
        """Returns the segments of packets of one IP version, and the fragments inside them."""
        contents = [datagram.content() for datagram in datagrams]
        window = b"".join(data for data, _ in contents)
        size = as_int64([len(data) for data, _ in contents])
        base = np.cumsum(size) - size
        rows = Rows(
            np.arange(len(size)), base, base + as_int64([there for _, there in contents]), base + size
        )
        columns = np.array([datagram.addresses for datagram in datagrams], dtype=np.uint64)
        addresses = tuple(np.ascontiguousarray(column) for column in columns.T)
        packets = IpPackets(rows, addresses, as_int64([datagram.protocol for datagram in datagrams]))
        found = _Found()
        count = self._count if whole else _count_nothing
        self._transport(window, behind_extensions(window, packets), found, count)
        segments = lay_out(found.parts, datagrams, base.tolist(), block.window_offset)
        if not whole:
            by_row = {datagram.row: datagram for datagram in datagrams}
            for row in set(segments.row.tolist()):
                self._reassembly.gave_segment(by_row[row])
            return segments, []

        def place(row: int, at: int, end: int, wire: int) -> tuple[int, list[FragmentPiece]]:
            datagram, skip = datagrams[row], at - int(base[row])
            pieces = datagram.between(skip, skip + wire - at)
            return datagram.row, [
                FragmentPiece(p.start - skip, p.end - skip, p.offset, p.data) for p in pieces
            ]

        return segments, list_fragments(block, found.fragments, place)

    # -- TCP ---------------------------------------------------------------------------------------------

    def _tcp(self, window: bytes, packets: IpPackets, count: Count) -> SegmentColumns:
        """Read the TCP headers of these packets."""
        whole = packets.rows.end - packets.rows.at >= 20
        count("cut header", int((~whole).sum()))
        packets = packets.keep(whole)
        rows = packets.rows
        header = gather(window, rows.at, ">u4", 5)
        control = header[:, 3].astype(np.int64)  # header size, flags and the receive window
        size = (control >> 28) * 4
        good = (size >= 20) & (rows.at + size <= rows.wire)
        if not good.all():
            count("bad tcp header", int((~good).sum()))
            packets, header, control, size = packets.keep(good), header[good], control[good], size[good]
            rows = packets.rows
        payload = rows.at + size
        length = rows.wire - payload
        return SegmentColumns(
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
        segments = block.segments
        seen, column = np.unique(segments.flow, return_inverse=True)
        indexes = []
        for direction in seen.tolist():
            key = _key(block.directions[direction])
            known = self._indexes.get(key)
            indexes.append(self._new_flow(key) if known is None else known)
        return replace(segments, flow=as_int64(indexes)[column])

    def _new_flow(self, key: bytes) -> int:
        addresses, half = key[:-8], len(key) // 2 - 4
        source, destination = addresses[:half], addresses[half:]
        ports = key[-4:-2], key[-2:]
        index = len(self.flows)
        self.flows.append(Flow(_endpoint(source, ports[0]), _endpoint(destination, ports[1])))
        self._indexes[key] = index
        return index


def _key(direction: Direction) -> bytes:
    """Returns the key of `_flow_indexes`: addresses, then the ports in a number of eight bytes."""
    ports = direction.source_port << 16 | direction.destination_port
    return direction.source + direction.destination + ports.to_bytes(8, "big")


def _endpoint(address: bytes, port: bytes) -> Endpoint:
    if len(address) == 4:
        host = ".".join(map(str, address))
    else:
        from ipaddress import IPv6Address  # most captures have none

        host = str(IPv6Address(address))
    return Endpoint(host, int.from_bytes(port, "big"))


def _count_nothing(reason: str, packets: int) -> None:
    """Counts nothing: first parts are counted with their packets."""


def _joined(block: PacketBlock, parts: list[SegmentColumns], *, has_fragments: bool = False) -> SegmentBlock:
    """One block in file order from the parts; with one part and no tags it is in order already."""

    def column(name: str) -> NDArray[Any]:
        columns = [getattr(part, name) for part in parts]
        joined = np.concatenate(columns) if len(columns) > 1 else columns[0]
        return joined if order is None else joined[order]

    order = None
    if not parts:
        none = np.empty(0, dtype=np.int64)
        parts = [SegmentColumns(none, none, none, none, none.astype(np.uint8), none, none, none)]
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
        has_fragments=has_fragments,
    )
