"""D12: a small job as a capture, and everything that is done to capture files.

    its = job()                                   # written by the encoders, with tensors of 3 MB
    variant = VARIANTS["cut head by 30%"](its)    # a file, and which bytes of the job are in it
    expected(its, variant.captured).survive       # the messages that must come out whole

Which messages are whole, partial or lost follows from the bytes that a variant still has, since the job's
writer knows what stands where; the decoder is not asked:

- *survive*: every byte of descriptor and payloads is there;
- *survive* too: only the descriptor is missing, and its neighbours tell where the message begins and ends;
- *partial*: the descriptor, the type and the id are there, bytes of the other payloads are missing;
- *lost*: everything else.
"""

from __future__ import annotations

import gzip
import pickle
import random
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise

import zstandard
from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from tests.builders import (
    SYN,
    Captured,
    Segment,
    enhanced,
    ethernet,
    interface,
    ipv4,
    link_frame,
    pcap_file,
    pcapng_file,
    section,
    tcp,
)
from tests.tensorpipe.conversations import Network, PipeTalk, Said, Write, message_frames, segments

MB3 = 3 << 18
"""Elements of a float32 tensor of 3 MB."""
SEGMENT = 16_000
HEADERS = 54
"""Bytes of a frame before its payload."""
BEFORE = 1_700_000_000 * 10**9

Name = tuple[int, str]
"""Id of a message, and `request` or `answer`."""
Place = tuple[int, int, int]
"""Flow (as in `Segment`), start, end."""


# --- the job ---


class Message(Struct, frozen=True):
    """Where a message and its tensors stand."""

    descriptor: Place
    payloads: tuple[Place, ...]
    """Frames: eight bytes of length, then the payload."""
    tensors: tuple[Place, ...]
    hashes: tuple[str, ...]

    @property
    def span(self) -> Place:
        return self.descriptor[0], self.descriptor[1], self.payloads[-1][2]


class Job(Struct, frozen=True):
    """What was sent, and the packets that carried it."""

    network: Network
    messages: dict[Name, Message]
    rows: list[Segment]
    first: list[int]
    """Of each row, the position of its first payload byte in its stream."""


class Writer:
    """Writes the job and keeps where everything stands."""

    def __init__(self, large: int) -> None:
        self.network = Network()
        self.large = large
        self.messages: dict[Name, Message] = {}
        self.pipes = (
            PipeTalk(self.network, name="worker0", client="10.0.0.1", server="10.0.0.2:5000"),
            PipeTalk(self.network, name="worker1", client="10.0.0.2", server="10.0.0.1:5000"),
        )

    def call(
        self, worker: int, number: int, *large: bool, answer: tuple[bool, ...] = (), text: int = 9
    ) -> None:
        """A call by that worker and its answer; a large tensor for each True, a small one for each False."""
        call = pickle.dumps(("trained", (number, "x" * text)))
        self._send(worker, number, True, 0x102, to_payload(PythonCall(call, False)), large)
        self._send(worker, number, False, 0x203, to_payload(PythonResp(pickle.dumps(number))), answer)

    def _send(
        self, worker: int, number: int, request: bool, kind: int, payload: bytes, large: Sequence[bool]
    ) -> None:
        pipe = self.pipes[worker]
        sizes = [self.large if is_large else 5 for is_large in large]
        tensors = [struct.pack("<f", number + at / 8) * size for at, size in enumerate(sizes)]
        metas = [
            TensorMeta(dtype="float32", sizes=(size,), strides=(1,), storage=at, storage_numel=size)
            for at, size in enumerate(sizes)
        ]
        said = Said(kind, number, payload, to_tensor_table(metas), tuple(tensors))
        flow, lane = 2 * pipe.descriptor + (not request), 2 * pipe.extra[0] + (not request)
        edges = [self._written(flow)]
        frames = message_frames(said)
        while edges[-1] - edges[0] < len(frames):
            at = edges[-1] - edges[0]
            edges.append(edges[-1] + 8 + int.from_bytes(frames[at : at + 8], "little"))
        places = [(flow, a, b) for a, b in pairwise(edges)]
        lanes, at = [], self._written(lane)
        for tensor in tensors:
            lanes.append((lane, at + 8, at + 8 + len(tensor)))
            at += 8 + len(tensor)
        pipe.send(said, from_client=request)
        self.messages[number, "request" if request else "answer"] = Message(
            places[0],
            tuple(places[1:]),
            tuple(lanes),
            tuple(sha256(tensor).hexdigest() for tensor in tensors),
        )

    def _written(self, flow: int) -> int:
        return sum(len(w.data) for w in self.network.writes if 2 * w.connection + (not w.from_client) == flow)


def frame_by_frame(writes: Sequence[Write]) -> list[Write]:
    """As torch writes: each frame by itself."""
    out = []
    for write in writes:
        at = 0
        while at < len(write.data):
            end = at + 8 + int.from_bytes(write.data[at : at + 8], "little")
            out.append(replace(write, data=write.data[at:end]))
            at = end
    return out


@lru_cache(maxsize=2)
def job(large: int = MB3) -> Job:
    writer = Writer(large)
    writer.call(0, 1, True, answer=(True,))
    writer.call(0, 2, text=100_000)
    writer.call(1, 50, True)
    writer.call(0, 3, True, False, answer=(False,))
    writer.call(1, 51)
    writer.call(0, 4, answer=(True,))
    writer.call(1, 52, False, False, answer=(False,))
    writer.call(0, 5)
    network = writer.network
    rows = segments(network, sizes=(SEGMENT,), writes=frame_by_frame(network.writes))
    base: dict[int, int] = {}
    first = []
    for row in rows:
        if row.flags & SYN:
            base[row.flow] = row.sequence + 1
        first.append((row.sequence - base[row.flow]) & 0xFFFFFFFF)
    return Job(network, writer.messages, rows, first)


# --- which bytes are there ---


class Present:
    """The bytes of each stream that a variant has."""

    def __init__(self, its: Job, captured: Sequence[int | None]) -> None:
        """`captured`: of each row the payload bytes that are there; None: the packet is not."""
        self._ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row, at, size in zip(its.rows, its.first, captured, strict=True):
            if size:
                self._ranges[row.flow].append((at, at + size))
        for ranges in self._ranges.values():
            ranges.sort()

    def missing(self, place: Place) -> int:
        """How many bytes of a range are not there."""
        flow, at, end = place
        missing = 0
        for a, b in self._ranges[flow]:
            if b > at and a < end:
                missing += max(0, a - at)
                at = max(at, b)
        return missing + max(0, end - at)


class Expected(Struct, frozen=True):
    """Names of messages by what must become of them."""

    survive: set[Name]
    partial: set[Name]
    lost: set[Name]
    present: Present


def expected(its: Job, captured: Sequence[int | None]) -> Expected:
    present = Present(its, captured)
    by_stream: dict[int, list[Name]] = defaultdict(list)
    for name, message in its.messages.items():
        by_stream[message.span[0]].append(name)
    fates: dict[str, set[Name]] = {"survive": set(), "partial": set(), "lost": set()}
    for names in by_stream.values():
        messages = [its.messages[name] for name in names]
        for at, (name, message) in enumerate(zip(names, messages, strict=True)):
            flow, start, _ = message.span
            before = not present.missing(messages[at - 1].descriptor if at else (flow, 0, start))
            behind = at + 1 == len(messages) or not present.missing(messages[at + 1].descriptor)
            fates[_fate(message, present, before and behind)].add(name)
    return Expected(fates["survive"], fates["partial"], fates["lost"], present)


def _fate(message: Message, present: Present, enclosed: bool) -> str:
    """`enclosed`: it is known where the message begins and ends."""
    bodies = [(flow, start + 8, end) for flow, start, end in message.payloads]
    if not present.missing(message.span):
        return "survive"
    if present.missing(message.descriptor):
        payloads = any(present.missing(place) for place in message.payloads)
        return "survive" if enclosed and not payloads else "lost"
    if any(present.missing(body) for body in bodies[:2]):
        return "lost"
    return "partial" if any(present.missing(body) for body in bodies[2:]) else "survive"


# --- variants ---


class Variant(Struct, frozen=True):
    """A file, and how many payload bytes of each row are in it."""

    data: bytes
    captured: list[int | None]
    signs: frozenset[str] = frozenset()
    """Codes of the findings that tell of the damage."""
    complete: bool = True
    """Whether the job's start and end are there, so that every tensor whose bytes are there is certain."""


def whole(its: Job) -> list[int | None]:
    return [len(row.payload) for row in its.rows]


def ip_packet(its: Job, row: Segment) -> bytes:
    flow = its.network.flows[row.flow // 2]
    flow = flow.reversed if row.flow % 2 else flow
    segment = tcp(
        row.payload,
        flow.source.port,
        flow.destination.port,
        sequence=row.sequence,
        acknowledgment=row.acknowledgment,
        flags=row.flags,
    )
    return ipv4(segment, flow.source.host, flow.destination.host)


def stamped(frames: Sequence[bytes], snap: int | None = None) -> list[Captured]:
    """A packet every 20 µs, in whole microseconds, which every format can say."""
    return [Captured(frame[:snap], BEFORE + 20_000 * at, len(frame)) for at, frame in enumerate(frames)]


def captured_frames(its: Job, rows: Sequence[Segment] | None = None) -> list[Captured]:
    return stamped([ethernet(ip_packet(its, row)) for row in (its.rows if rows is None else rows)])


def reorder(its: Job) -> Variant:
    """Packets overtake up to 40 others."""
    rnd = random.Random(12)
    order = sorted(range(len(its.rows)), key=lambda at: at + rnd.uniform(0, 40))
    return Variant(pcap_file(captured_frames(its, [its.rows[at] for at in order])), whole(its))


def retransmit(its: Job) -> Variant:
    """Every third segment comes again later, at worst long after it."""
    rnd = random.Random(12)
    places = [(at, row) for at, row in enumerate(its.rows)]
    again = [(at + rnd.choice([1, 7, 300]), row) for at, row in places[::3] if row.payload]
    rows = [row for _, row in sorted(places + again, key=lambda one: one[0])]
    return Variant(pcap_file(captured_frames(its, rows)), whole(its))


def overlap(its: Job) -> Variant:
    """Behind each segment its second half comes again, together with the first half of the next one."""
    rows: list[Segment] = []
    last: dict[int, Segment] = {}
    for row in its.rows:
        before = last.get(row.flow)
        if row.payload and before is not None:
            half = len(before.payload) // 2
            joined = before.payload[half:] + row.payload[: len(row.payload) // 2]
            rows.append(replace(row, sequence=before.sequence + half, payload=joined))
        if row.payload:
            last[row.flow] = row
        rows.append(row)
    return Variant(pcap_file(captured_frames(its, rows)), whole(its))


def snaplen(size: int) -> Callable[[Job], Variant]:
    def make(its: Job) -> Variant:
        frames = [ethernet(ip_packet(its, row)) for row in its.rows]
        captured: list[int | None] = [min(len(row.payload), size - HEADERS) for row in its.rows]
        data = pcap_file(stamped(frames, size), snap_length=size)
        return Variant(data, captured, frozenset({"truncated-packets"}))

    return make


def cut_tail(share: float) -> Callable[[Job], Variant]:
    """The file ends inside a packet; that packet is lost too."""

    def make(its: Job) -> Variant:
        packets = captured_frames(its)
        kept = int(len(packets) * share)
        end = len(pcap_file(packets[: kept + 1])) - 7
        captured = [n if at < kept else None for at, n in enumerate(whole(its))]
        return Variant(pcap_file(packets)[:end], captured, complete=False)

    return make


def cut_head(share: float) -> Callable[[Job], Variant]:
    def make(its: Job) -> Variant:
        first = int(len(its.rows) * share)
        captured = [None if at < first else n for at, n in enumerate(whole(its))]
        return Variant(pcap_file(captured_frames(its)[first:]), captured, complete=False)

    return make


def lost(*which: int) -> Callable[[Job], Variant]:
    """Rows that were not captured."""

    def make(its: Job) -> Variant:
        packets = captured_frames(its)
        kept = [one for at, one in enumerate(packets) if at not in which]
        captured = [None if at in which else n for at, n in enumerate(whole(its))]
        return Variant(pcap_file(kept), captured, frozenset({"capture-gap"}))

    return make


def two_interfaces(its: Job) -> Variant:
    """A pcapng whose packets alternate between Ethernet in nanoseconds and raw IP in microseconds."""
    blocks = [section(), interface(link_type=1, resolution=9), interface(link_type=101, resolution=6)]
    for at, row in enumerate(its.rows):
        ip, time_ns = ip_packet(its, row), BEFORE + 20_000 * at
        if at % 2:
            blocks.append(enhanced("<", ip, ticks=time_ns // 1000, interface_id=1))
        else:
            blocks.append(enhanced("<", ethernet(ip), ticks=time_ns))
    return Variant(b"".join(blocks), whole(its))


def in_frames(link_type: int) -> Callable[[Job], Variant]:
    def make(its: Job) -> Variant:
        frames = [link_frame(link_type, ip_packet(its, row)) for row in its.rows]
        return Variant(pcap_file(stamped(frames), link_type=link_type), whole(its))

    return make


VARIANTS: dict[str, Callable[[Job], Variant]] = {
    "microseconds": lambda its: Variant(pcap_file(captured_frames(its), nanoseconds=False), whole(its)),
    "nanoseconds": lambda its: Variant(pcap_file(captured_frames(its)), whole(its)),
    "big-endian": lambda its: Variant(pcap_file(captured_frames(its), order=">"), whole(its)),
    "pcapng, big-endian": lambda its: Variant(pcapng_file(captured_frames(its), order=">"), whole(its)),
    "pcapng, two interfaces": two_interfaces,
    "cooked, version 2": in_frames(276),
    "gzip": lambda its: Variant(gzip.compress(pcap_file(captured_frames(its)), 1), whole(its)),
    "Zstandard": lambda its: Variant(zstandard.compress(pcap_file(captured_frames(its))), whole(its)),
    "reorder": reorder,
    "retransmit": retransmit,
    "overlap": overlap,
    "snaplen 96": snaplen(96),
    "snaplen 300": snaplen(300),
    **{f"cut tail to {share:.0%}": cut_tail(share) for share in (0.15, 0.4, 0.7, 0.95)},
    **{f"cut head by {share:.0%}": cut_head(share) for share in (0.05, 0.3, 0.6, 0.85)},
}
