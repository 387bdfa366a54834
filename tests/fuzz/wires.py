"""Targets of the wire stages: capture files, packets, conversations of pipes.

Beside "no other errors": however the bytes are cut up, the same comes out; no byte is counted twice; and what
lies behind a damage still comes out.
"""

from __future__ import annotations

import gzip
import os
import random
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rpcinspect.capture import CaptureReader, Reading
from rpcinspect.capture.block import PacketBlock, TcpBlock
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.tensor import storage_lengths
from rpcinspect.tcp.connections import Tcp
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tcp.segment import Flow, Segmenter
from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.control_types import ControlLayout
from rpcinspect.tensorpipe.demux import Demux
from rpcinspect.tensorpipe.records import Placement
from rpcinspect.views.jsonl.lines import JsonLines
from tests.builders import (
    SYN,
    Captured,
    by_heads,
    interface,
    link_frame,
    packet,
    packet_block,
    pcapng_file,
    section,
    simple,
)
from tests.decoded import parse
from tests.fuzz import corpus
from tests.fuzz.mutation import (
    MAX_BYTES,
    change_bytes,
    change_frames,
    change_parts,
    pack,
    unpack,
)
from tests.places import content
from tests.tensorpipe.conversations import (
    Hole,
    Network,
    Outcome,
    PipeTalk,
    Player,
    Said,
    Write,
    chat,
    endpoint,
    message_frames,
    segments,
)

NATIVE = Options(reading=Reading(reader="native"))
"""What our own reader does not know goes to no other program."""


def scratch(data: bytes, name: str = "input") -> Path:
    """A file with these bytes; the next call with this name overwrites it."""
    folder = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir())
    path = folder / f"rpcinspect-fuzz-{os.getpid()}-{name}"
    path.write_bytes(data)
    return path


# --- capture files ---


def capture(data: bytes) -> None:
    """A file is refused with a reason, or read to its end: the same compressed as not."""
    path = scratch(data)
    try:
        said = _decoded(path)
        if len(data) % 4 == 0:
            packed = scratch(gzip.compress(data, 1, mtime=0), "packed")
            try:
                assert _without_file(_decoded(packed)) == _without_file(said)
            finally:
                packed.unlink()
    except CaptureError:
        return
    finally:
        path.unlink()


def _decoded(path: Path) -> list[dict[str, object]]:
    with tempfile.TemporaryFile() as spool, Decoding([str(path)], NATIVE) as decoding:
        view = JsonLines(spool, decoding.bytes)
        for record in decoding.records():
            view.feed([record])
        lines = list(parse(b"".join(view.finish(decoding.session))))
        totals = decoding.session.totals
    used = totals.rpc_bytes + totals.tensor_bytes + totals.skipped_bytes + totals.store_bytes
    there = _payload_bytes(path)
    assert used <= there, f"{used} bytes of {there} were counted"
    return lines


def _payload_bytes(path: Path) -> int:
    """Bytes of all streams that were captured."""
    with CaptureReader(str(path), 0, NATIVE.reading) as reader:
        if reader.reader == "log":
            return path.stat().st_size
        segmenter = Segmenter()
        tcp = Tcp(
            CaptureBytes(lambda capture, at, size: reader.pread(at, size)), segmenter.flows, 2_000_000_000
        )
        for block in reader.blocks():
            assert isinstance(block, (PacketBlock, TcpBlock))
            tcp.feed(segmenter.feed(block))
        list(tcp.finish())
        return sum(_size(s) - sum(b - a for a, b in s.holes) for c in tcp.connections for s in c.streams)


def _size(stream: Stream) -> int:
    return 0 if stream.origin is None or stream.end is None else stream.end - stream.origin


def _content(stream: Stream) -> bytes:
    if stream.origin is None or stream.end is None or stream.end - stream.origin > 1 << 24:
        return b""
    return stream.read(stream.origin, stream.end)


def _without_file(lines: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    return [
        {k: v for k, v in line.items() if k not in ("path", "bytes", "compression")}
        if line["kind"] == "capture"
        else line
        for line in lines
    ]


def capture_seeds() -> Iterator[bytes]:
    for path in (*corpus.captures(), *corpus.of_other_protocols()):
        try:
            data = content(path)
        except (OSError, EOFError, ValueError):
            data = path.read_bytes()
        yield data[: MAX_BYTES if len(data) <= 2 * MAX_BYTES else MAX_BYTES // 2]
    frames = [packet(b"hello", sequence=n) for n in range(3)]
    yield pcapng_file([Captured(frame, n) for n, frame in enumerate(frames)], order=">")
    yield section() + interface(resolution=0x83, offset_s=-5) + b"".join(simple("<", f) for f in frames)


def capture_change(data: bytes, draw: random.Random) -> bytes:
    """One packet's bytes with the lengths around it repaired, one header, or the row of packets."""
    rows = _rows(data)
    if len(rows) < 3 or draw.random() < 0.2:
        return change_bytes(data, draw)
    for _ in range(draw.choice((1, 1, 2))):
        at = draw.randrange(len(rows))
        head, body = rows[at]
        match draw.randrange(6):
            case 0:
                del rows[at]
            case 1:
                rows.insert(draw.randrange(len(rows)), rows[at])
            case 2:
                rows.insert(draw.randrange(len(rows)), rows.pop(at))
            case 3:
                rows[at] = (change_bytes(head, draw), body)
            case _:
                rows[at] = (head, change_bytes(body, draw))
        if len(rows) < 2:
            break
    return _join(data[:4], rows)[:MAX_BYTES]


def _rows(data: bytes) -> list[tuple[bytes, bytes]]:
    """(header, body) of the file header and of each record or block of a little-endian file."""
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        rows, at = [], 0
        while at + 12 <= len(data):
            size = int.from_bytes(data[at + 4 : at + 8], "little")
            if size < 12 or at + size > len(data):
                break
            rows.append((data[at : at + 4], data[at + 8 : at + size - 4]))
            at += size
        return rows
    rows, at = [(data[:24], b"")], 24
    while at + 16 <= len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        if at + 16 + size > len(data):
            break
        rows.append((data[at : at + 16], data[at + 16 : at + 16 + size]))
        at += 16 + size
    return rows


def _join(magic: bytes, rows: Sequence[tuple[bytes, bytes]]) -> bytes:
    out = []
    for number, (head, body) in enumerate(rows):
        if magic == b"\x0a\x0d\x0d\x0a":
            size = struct.pack("<I", 12 + len(body))
            out.append(head[:4] + size + body + size)
        elif number and len(head) == 16:
            out.append(head[:8] + struct.pack("<II", len(body), max(len(body), 0)) + body)
        else:
            out.append(head + body)
    return b"".join(out)


# --- packets ---


def packets(data: bytes) -> None:
    """The same segments and streams from one block of packets as from a block for each of them, and from the
    first bytes of packets as from all of them.
    """
    parts = [part for part in unpack(data) if len(part) > 2][:200]
    if not parts:
        return
    kinds = [int.from_bytes(part[:2], "little") for part in parts]
    frames = [Captured(part[2:], n, len(part) - 2 + (part[0] & 1)) for n, part in enumerate(parts)]
    whole = packet_block(frames, link_type=kinds, window_offset=0)
    one = _Reading(whole.window)
    one.feed(whole)
    many = _Reading(whole.window)
    for row in range(len(whole)):
        many.feed(_only(whole, row))
    assert one.other == many.other
    assert sorted(one.rows) == sorted(many.rows)
    if not one.starts_late():
        assert one.streams() == many.streams()
    heads = _Reading(whole.window)
    heads.feed(by_heads(whole, 40 + len(data) % 100))
    assert heads.other == one.other
    assert sorted(heads.rows) == sorted(one.rows)


class _Reading:
    """What packets give."""

    def __init__(self, window: bytes) -> None:
        self._segmenter = Segmenter()
        source = CaptureBytes(lambda capture, at, size: window[at : at + size])
        self._tcp = Tcp(source, self._segmenter.flows, None)
        self._window = window
        self.rows: list[tuple[object, ...]] = []

    @property
    def other(self) -> dict[str, int]:
        return {reason: n for reason, n in self._segmenter.other.items() if n}

    def feed(self, block: PacketBlock) -> None:
        found = self._segmenter.feed(block)
        columns = (found.packet, found.flow, found.sequence, found.acknowledgment, found.flags)
        rows = zip(*(c.tolist() for c in (*columns, found.offset, found.captured, found.length)), strict=True)
        for row in rows:
            _, _, _, _, _, offset, captured, length = row
            assert 0 <= captured <= length, row
            assert offset >= 0, row
            assert not captured or offset + captured <= len(self._window), row
            self.rows.append((row[0], str(self._segmenter.flows[row[1]]), *row[2:]))
        self._tcp.feed(found)

    def starts_late(self) -> bool:
        """Whether a direction begins without a SYN where its connection has one: where that direction starts
        is better told when both are seen at once.
        """
        first: dict[str, int] = {}
        begun: set[frozenset[str]] = set()
        for row in self.rows:
            flow, flags = str(row[1]), int(str(row[4]))
            first.setdefault(flow, flags)
            if flags & SYN:
                begun.add(frozenset(flow.split(">")))
        silent = [flow for flow, flags in first.items() if not flags & SYN]
        return any(frozenset(flow.split(">")) in begun for flow in silent)

    def streams(self) -> list[tuple[object, ...]]:
        list(self._tcp.finish())
        said = []
        for connection in self._tcp.connections:
            for stream in connection.streams:
                size = _size(stream)
                content = _content(stream)
                assert size >= 0
                if not size:
                    continue
                holes = [(stream.offset(a), stream.offset(b)) for a, b in stream.holes]
                said.append((str(stream.flow), connection.client_isn, size, content, holes))
        return sorted(said, key=repr)


def _only(block: PacketBlock, row: int) -> PacketBlock:
    rows = slice(row, row + 1)
    start = int(block.offset[row])
    return PacketBlock(
        capture=block.capture,
        first_number=block.first_number + row,
        window=block.window[start - 16 : start + int(block.caplen[row])],
        window_offset=start - 16,
        offset=block.offset[rows],
        caplen=block.caplen[rows],
        length=block.length[rows],
        time_ns=block.time_ns[rows],
        link_type=block.link_type[rows],
    )


LINK_TYPES = (0, 1, 9, 12, 50, 51, 101, 104, 105, 108, 109, 113, 119, 127, 138, 149, 163, 192, 226, 276)


def packet_seeds() -> Iterator[bytes]:
    from tests.builders import geneve, gre, ipv4, ipv4_fragments, ipv6, ipv6_fragments, mpls, tcp, udp, vxlan

    body = tcp(b"hello world, this is a payload of some bytes", 5000, 6000, sequence=7)
    four, six = ipv4(body, "10.0.0.1", "10.0.0.2"), ipv6(body, "::1", "::2")
    for kind in LINK_TYPES:
        yield pack([kind.to_bytes(2, "little") + link_frame(kind, inner) for inner in (four, six)])
    eth = b"\x01\x00"
    for inner in (gre(four), udp(vxlan(link_frame(1, four)), 4789), udp(geneve(link_frame(1, six)), 6081)):
        protocol = 47 if inner[:2] == b"\0\0" else 17
        yield pack([eth + link_frame(1, ipv4(inner, "10.1.0.1", "10.1.0.2", protocol=protocol))])
    parts = ipv4_fragments(body, "10.0.0.1", "10.0.0.2", [24, 40])
    yield pack([eth + link_frame(1, part) for part in parts])
    parts = ipv6_fragments(body, "::1", "::2", [24, 40])
    yield pack([eth + link_frame(1, part) for part in (parts[2], parts[0], parts[1])])
    yield pack([eth + bytes(12) + b"\x88\x47" + mpls(four)])
    for path in (*corpus.captures()[:3], *corpus.of_other_protocols()):
        rows = _rows(path.read_bytes())
        if len(rows) > 1 and len(rows[0][0]) == 24:
            kind = rows[0][0][20:22]
            yield pack([kind + body for _, body in rows[1:30]])[:MAX_BYTES]


def packet_change(data: bytes, draw: random.Random) -> bytes:
    return change_parts(data, draw, head=2)


# --- pipes ---

ENDS = b"10.0.0.%d:%d>10.0.0.%d:%d"


@dataclass(frozen=True)
class Heard:
    """What came out, without what the cutting up decides."""

    messages: list[tuple[object, ...]]
    sums: tuple[int, int, int, int]
    problems: list[tuple[str, str]]


def pipes(data: bytes) -> None:
    """A conversation says the same however it is cut up, and no byte of it is counted twice."""
    parts = unpack(data)
    if len(parts) < 3:
        return
    network, holes = Network(), []
    for line in parts[1].split(b"\n")[:40]:
        flow = _flow(line)
        if flow is None:
            return
        network.flows.append(flow)
    sent: Counter[tuple[int, bool]] = Counter()
    for part in parts[2:400]:
        if len(part) < 2 or part[0] >= len(network.flows):
            continue
        key = part[0], not part[1] & 1
        body = part[2:]
        network.write(key[0], body, from_client=key[1])
        if part[1] & 6 == 6 and body:  # it was not captured
            holes.append(Hole(*key, sent[key], sent[key] + len(body)))
        sent[key] += len(body)
    flags = (parts[0] or b"\0")[0]
    total = sum(sent.values()) - sum(hole.end - hole.start for hole in holes)
    heard = [
        _hear(network, holes, sizes, syn=not flags & 1, end=flags & 2) for sizes in ((1448,), (7, 1, 40))
    ]
    assert heard[0].messages == heard[1].messages
    assert heard[0].problems == heard[1].problems
    assert heard[0].sums == heard[1].sums
    assert sum(heard[0].sums) <= total, f"{heard[0].sums} of {total}"


def _flow(line: bytes) -> Flow | None:
    source, _, destination = line.decode("latin-1").partition(">")
    try:
        ends = endpoint(source), endpoint(destination)
    except ValueError:
        return None
    if not all(0 <= end.port < 65536 and end.host for end in ends) or ends[0] == ends[1]:
        return None
    return Flow(*ends)


def _hear(network: Network, holes: Sequence[Hole], sizes: Sequence[int], *, syn: bool, end: int) -> Heard:
    player = Player(network)
    outcome = player.outcome
    outcome.demux = Demux(read_table=storage_lengths)
    rows = segments(network, sizes=sizes, holes=holes, syn=syn, end=1 if end else 0)
    for _, written in groupby(rows, key=lambda row: row.flow // 2):  # what a connection's end wrote at once
        player.feed(list(written))
    player.finish()
    return Heard(
        _told(outcome), _sums(outcome), sorted((p.layer, p.reason) for p in outcome.demux.registry.problems)
    )


def _told(outcome: Outcome) -> list[tuple[object, ...]]:
    said = []
    for m in outcome.messages:
        tensors = tuple(
            (t.placement.value, None if t.extent is None else t.extent.read(outcome.bytes)) for t in m.tensors
        )
        for tensor, (placement, held) in zip(m.tensors, tensors, strict=True):
            if placement == Placement.CERTAIN.value:
                assert held is not None
                assert len(held) == tensor.descriptor.length
        said.append(
            (str(m.flow), m.from_client, m.offset, m.payloads, m.payload_missing, m.after_loss, tensors)
        )
    return sorted(said, key=repr)


def _sums(outcome: Outcome) -> tuple[int, int, int, int]:
    registry = outcome.demux.registry
    frames = sum(state.frame_bytes for state in registry.pipes)
    return (
        frames,
        sum(state.tensor_bytes for state in registry.pipes),
        registry.skipped_bytes,
        registry.store_bytes,
    )


def as_parts(network: Network, flags: int = 2) -> bytes:
    """A conversation as input of `pipes`."""
    ends = b"\n".join(f"{flow.source}>{flow.destination}".encode() for flow in network.flows)
    writes = [bytes([w.connection, not w.from_client]) + w.data for w in network.writes]
    return pack([bytes([flags]), ends, *writes])


def pipe_seeds() -> Iterator[bytes]:
    for channel in ("basic", "mpt_uv", "cma", "cuda_basic"):
        for layout in ControlLayout:
            for moved in (False, True):
                network = Network()
                ibv = moved and layout is ControlLayout.V1_8  # which tells the move by the transport's name
                talk = PipeTalk(
                    network, channel=channel, layout=layout, moved=moved, transport="ibv" if ibv else "uv"
                )
                chat(talk)
                yield as_parts(network)
    network = Network()
    for number, message in enumerate(corpus.distinct()[:8]):
        talk = PipeTalk(network, name=f"w{number}", client=f"10.0.0.{number + 3}", first_id=10 * number)
        payload, table = message.payloads
        said = Said(message.record.rpc.message.type, number, payload, table, message.tensors)
        if sum(map(len, message.tensors)) < 4000:
            talk.send(said)
    yield as_parts(network)
    yield as_parts(network, flags=3)


def pipe_change(data: bytes, draw: random.Random) -> bytes:
    return change_parts(data, draw, change_frames, head=2)


# --- damage: what is behind it still comes out ---


def damage(data: bytes) -> None:
    """Up to 16 bytes of what opens a pipe, or of one of nine messages, are others: all messages come out but
    that one.

    In: which of the writes, where in it, and the bytes.
    """
    if len(data) < 4:
        return
    chosen, at, bytes_ = data[0] % 14, int.from_bytes(data[1:3], "little"), data[3:19]
    network = Network()
    talk = PipeTalk(network, channel=("basic", "mpt_uv")[data[0] >> 7])
    places = []
    for number in range(9):
        places.append(len(network.writes))
        talk.send(Said(id=number, payload=b"payload %d" % number, tensors=(b"tensor",) * (number % 2)))
    place = [*places, 0, 1, 2, 3, 4][chosen]
    write = network.writes[place]
    at %= len(write.data)
    changed = (write.data[:at] + bytes_ + write.data[at + len(bytes_) :])[: len(write.data)]
    network.writes[place] = Write(write.connection, write.from_client, changed)
    player = Player(network)
    player.outcome.demux = Demux(read_table=storage_lengths)
    player.feed(segments(network))
    player.finish()
    ids = {m.payloads[1][0] for m in player.outcome.messages if len(m.payloads) > 1 and m.payloads[1]}
    lost = set(range(9)) - ids - {chosen}
    assert not lost, f"{sorted(lost)} lost by a damage of write {chosen}"


def damage_seeds() -> Iterator[bytes]:
    draw = random.Random(1)
    size = len(message_frames(Said(id=1, payload=b"payload 1", tensors=(b"tensor",))))
    for number in range(14):
        for at in range(0, size if number < 9 else 48, 8 if number < 9 else 4):
            value = draw.choice(
                (bytes(8), b"\xff" * 8, (1 << 60).to_bytes(8, "little"), b"\x40\0\0\0\0\0\0\0")
            )
            yield bytes([number]) + at.to_bytes(2, "little") + value
