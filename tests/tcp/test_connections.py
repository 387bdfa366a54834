"""Reassembly against a naive model that keeps one entry per byte."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.tcp.connections import Tcp
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tcp.stream import WRAP, Stream
from tests.builders import ACK, FIN, RST, SYN, Segment, segment_block
from tests.thorough import examples

A, B = Endpoint("10.0.0.1", 1000), Endpoint("10.0.0.2", 2000)
FORWARD, BACKWARD = 0, 1


class Bench:
    """A TCP stage over two flows, and the windows that its blocks came from."""

    def __init__(self, patience_ns: int | None = None) -> None:
        self.windows: dict[int, bytes] = {}
        self.tcp = Tcp(CaptureBytes(self._pread), [Flow(A, B), Flow(B, A)], patience_ns)
        self.packets = 0

    def _pread(self, capture: int, offset: int, length: int) -> bytes:
        window = self.windows[capture]
        return window[offset - 1000 : offset - 1000 + length]

    def feed(self, segments: Sequence[Segment], capture: int = 0) -> list[Stream]:
        """Segments as the next block of a capture; offsets go on where the last block ended."""
        before = self.windows.get(capture, b"")
        block = segment_block(
            segments, capture=capture, window_offset=1000 + len(before), first_number=self.packets + 1
        )
        self.packets += len(segments)
        self.windows[capture] = before + block.window
        return self.tcp.feed(block)

    def finish(self) -> None:
        list(self.tcp.finish())


def content(stream: Stream) -> bytes:
    """Everything of a stream, zeros in its holes."""
    if stream.end is None or stream.origin is None or stream.end == stream.origin:
        return b""
    return stream.read(stream.origin, stream.end)


def holes(stream: Stream) -> list[tuple[int, int]]:
    return [(stream.offset(a), stream.offset(b)) for a, b in stream.holes]


def data(start: int, payload: bytes, *, isn: int = 999, flags: int = ACK, **more: int) -> Segment:
    """A segment whose payload starts at that offset of the stream."""
    return Segment(flow=FORWARD, sequence=isn + 1 + start, payload=payload, flags=flags, **more)


def syn(isn: int = 999) -> Segment:
    return Segment(flow=FORWARD, sequence=isn, flags=SYN)


# --- a property: any order, overlap and duplication, against the model ---


@st.composite
def traffic(draw: st.DrawFn) -> tuple[int, list[tuple[int, bytes]], list[int]]:
    """(ISN, pieces in the order of capture, sizes of blocks); copies of a byte may differ."""
    isn = draw(st.integers(WRAP - 60, WRAP - 1) | st.integers(0, WRAP - 1))
    piece = st.tuples(st.integers(0, 120), st.binary(min_size=1, max_size=30))
    pieces = draw(st.lists(piece, min_size=1, max_size=25))
    cuts = draw(st.lists(st.integers(1, 10), max_size=10))
    return isn, pieces, cuts


@given(traffic())
@settings(max_examples=examples(300), deadline=None)
def test_reassembly_equals_the_model(case: tuple[int, list[tuple[int, bytes]], list[int]]) -> None:
    isn, pieces, cuts = case
    model: dict[int, int] = {}
    for start, payload in pieces:
        for at, byte in enumerate(payload, start):
            model.setdefault(at, byte)
    bench = Bench()
    rest = [syn(isn)] + [data(start, payload, isn=isn) for start, payload in pieces]
    for size in [*cuts, len(rest)]:
        if rest:
            bench.feed(rest[:size])
            rest = rest[size:]
    bench.finish()
    stream = bench.tcp.connections[0].forward
    size = max(model) + 1 if model else 0
    assert content(stream) == bytes(model.get(at, 0) for at in range(size))
    missing = {at for a, b in holes(stream) for at in range(a, b)}
    assert missing == set(range(size)) - set(model)


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[int, bytes, list[tuple[int, bytes]], str]]:
    """Connections that use the same ports one after the other: (ISN, data on the SYN, pieces, ending)."""
    isns = draw(st.lists(st.integers(0, WRAP - 1), min_size=1, max_size=4, unique=True))
    piece = st.tuples(st.integers(0, 60), st.binary(min_size=2, max_size=20))
    return [
        (
            isn,
            draw(st.binary(max_size=5)),
            draw(st.lists(piece, max_size=8)),
            draw(st.sampled_from(["fin", "rst", "none"])),
        )
        for isn in isns
    ]


@given(lives(), st.lists(st.integers(1, 10), max_size=10))
@settings(max_examples=examples(200), deadline=None)
def test_ports_used_again_keep_their_bytes_apart(
    case: list[tuple[int, bytes, list[tuple[int, bytes]], str]], cuts: list[int]
) -> None:
    rest: list[Segment] = []
    models: list[dict[int, int]] = []
    ends: list[int | None] = []
    for isn, early, pieces, ending in case:
        model: dict[int, int] = {}
        rest.append(Segment(flow=FORWARD, sequence=isn, flags=SYN, payload=early))
        for start, payload in [(0, early), *pieces]:
            for at, byte in enumerate(payload, start):
                model.setdefault(at, byte)
        rest += [data(start, payload, isn=isn) for start, payload in pieces]
        size = max(model) + 1 if model else 0
        if ending == "fin":
            rest.append(data(size + 3, b"", isn=isn, flags=FIN | ACK))  # three bytes before it were lost
        elif ending == "rst":
            rest.append(data(size, b"", isn=isn, flags=RST))
        models.append(model)
        ends.append(size + 3 if ending == "fin" else size)
    bench = Bench()
    for cut in [*cuts, len(rest)]:
        if rest:
            bench.feed(rest[:cut])
            rest = rest[cut:]
    bench.finish()
    assert len(bench.tcp.connections) == len(case)
    for connection, model, end in zip(bench.tcp.connections, models, ends, strict=True):
        stream = connection.forward
        assert end is not None
        assert content(stream) == bytes(model.get(at, 0) for at in range(end))
        missing = {at for a, b in holes(stream) for at in range(a, b)}
        assert missing == set(range(end)) - set(model)


@given(st.binary(min_size=1, max_size=300), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_any_segmentation_reordering_and_duplication_gives_the_same_bytes(
    stream_bytes: bytes, draw: st.DataObject
) -> None:
    edges = sorted(
        draw.draw(st.sets(st.integers(1, len(stream_bytes)), max_size=20)) | {0, len(stream_bytes)}
    )
    pieces = [(a, stream_bytes[a:b]) for a, b in pairwise(edges)]
    pieces += draw.draw(st.lists(st.sampled_from(pieces), max_size=5))
    bench = Bench()
    bench.feed([syn()])
    for start, payload in draw.draw(st.permutations(pieces)):
        bench.feed([data(start, payload)])
    stream = bench.tcp.connections[0].forward
    assert content(stream) == stream_bytes
    assert not stream.holes
    assert not stream.conflicts


# --- single facts ---


def test_segments_in_order_come_out_at_once() -> None:
    bench = Bench()
    grown = bench.feed([syn(), data(0, b"hel"), data(3, b"lo")])
    assert [content(s) for s in grown] == [b"hello"]


def test_a_gap_holds_back_what_is_behind_it() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"ab"), data(4, b"ef")])
    stream = bench.tcp.connections[0].forward
    assert content(stream) == b"ab"
    assert stream.waiting
    bench.feed([data(2, b"cd")])
    assert content(stream) == b"abcdef"


def test_missing_bytes_become_a_hole_at_the_end() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"ab"), data(4, b"ef"), data(6, b"", flags=FIN | ACK)])
    bench.finish()
    stream = bench.tcp.connections[0].forward
    assert content(stream) == b"ab\0\0ef"
    assert holes(stream) == [(2, 4)]
    extent = stream.extent(stream.origin + 1, stream.origin + 6)
    assert extent.missing == ((1, 3),)
    assert [length for _, _, length in extent.pieces] == [1, 2]
    assert extent.missing_bytes == 2


def test_a_tail_that_the_other_side_acknowledged_is_a_hole() -> None:
    bench = Bench()
    reply = Segment(flow=BACKWARD, sequence=1, acknowledgment=1000 + 9)
    bench.feed([syn(), data(0, b"abc"), reply])
    bench.finish()
    assert holes(bench.tcp.connections[0].forward) == [(3, 9)]


def test_a_lost_fin_is_no_hole() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"abc"), Segment(flow=BACKWARD, sequence=1, acknowledgment=1000 + 4)])
    bench.finish()
    assert not bench.tcp.connections[0].forward.holes


def test_patience_settles_a_hole_that_was_acknowledged() -> None:
    bench = Bench(patience_ns=10)
    bench.feed([syn(), data(0, b"ab", time_ns=1), data(4, b"ef", time_ns=2)])
    bench.feed([Segment(flow=BACKWARD, sequence=1, acknowledgment=1000 + 6, time_ns=3)])
    stream = bench.tcp.connections[0].forward
    assert content(stream) == b"ab"
    bench.feed([data(6, b"gh", time_ns=50)])
    assert content(stream) == b"ab\0\0efgh"


def test_patience_does_not_settle_what_was_not_acknowledged() -> None:
    bench = Bench(patience_ns=10)
    bench.feed([syn(), data(0, b"ab", time_ns=1), data(4, b"ef", time_ns=2)])
    bench.feed([data(6, b"gh", time_ns=50)])
    assert content(bench.tcp.connections[0].forward) == b"ab"


def test_the_first_copy_wins_and_a_different_one_is_noted() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"abcd"), data(1, b"xcX"), data(4, b"e")])
    stream = bench.tcp.connections[0].forward
    assert content(stream) == b"abcde"
    [conflict] = stream.conflicts
    assert (stream.offset(conflict.position), conflict.length, conflict.packet) == (1, 3, 3)


def test_an_equal_copy_is_no_conflict() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"abcd"), data(0, b"abcd"), data(2, b"cdef")])
    stream = bench.tcp.connections[0].forward
    assert content(stream) == b"abcdef"
    assert not stream.conflicts


def test_a_keep_alive_probe_is_no_data() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"abcd"), data(3, b"\0"), data(4, b"e")])
    stream = bench.tcp.connections[0].forward
    assert content(stream) == b"abcde"
    assert not stream.conflicts


@pytest.mark.parametrize("apart", [False, True], ids=["one block", "a block for each"])
def test_a_keep_alive_probe_does_not_fill_what_was_cut(apart: bool) -> None:
    rows = [syn(), data(0, b"abc", length=5), data(4, b"\0"), data(5, b"f")]
    bench = Bench()
    for block in [[row] for row in rows] if apart else [rows]:
        bench.feed(block)
    bench.finish()
    stream = bench.tcp.connections[0].forward
    assert (content(stream), holes(stream)) == (b"abc\0\0f", [(3, 5)])


def test_the_last_byte_may_be_cut_in_one_file_and_not_in_the_next() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"abcd"), data(4, b"", length=1)], capture=0)
    bench.feed([syn(), data(0, b"abcd"), data(4, b"e")], capture=1)
    bench.finish()
    [connection] = bench.tcp.connections
    assert (content(connection.forward), holes(connection.forward)) == (b"abcde", [])


def test_sequence_numbers_wrap() -> None:
    bench = Bench()
    isn = WRAP - 4
    bench.feed([syn(isn), data(0, b"ab", isn=isn), data(2, b"cdef", isn=isn), data(6, b"g", isn=isn)])
    assert content(bench.tcp.connections[0].forward) == b"abcdefg"


def test_sequence_numbers_wrap_between_the_first_acknowledgment_and_the_first_data() -> None:
    bench = Bench()
    ack = Segment(flow=BACKWARD, sequence=1, flags=ACK, acknowledgment=WRAP - 2)
    bench.feed([ack])
    bench.feed([Segment(flow=FORWARD, sequence=3, payload=b"ab")])
    bench.finish()
    [connection] = bench.tcp.connections
    [stream] = [s for s in connection.streams if s.end is not None and s.origin != s.end]
    assert holes(stream) == []
    assert content(stream) == b"ab"


def test_a_syn_may_carry_data() -> None:
    bench = Bench()
    bench.feed([Segment(flow=FORWARD, sequence=999, flags=SYN, payload=b"ab"), data(2, b"cd")])
    assert content(bench.tcp.connections[0].forward) == b"abcd"


def test_a_snap_length_leaves_exact_holes() -> None:
    bench = Bench(patience_ns=10)
    bench.feed([syn(), data(0, b"ab", length=5), data(5, b"fg")])
    stream = bench.tcp.connections[0].forward
    assert content(stream) == b"ab\0\0\0fg"
    assert holes(stream) == [(2, 5)]
    assert stream.cut_bytes == 3


def test_what_is_cut_of_neighbours_is_one_hole() -> None:
    bench = Bench(patience_ns=10)
    bench.feed([syn(), data(0, b"", length=3), data(3, b"", length=2), data(5, b"fg")])
    assert holes(bench.tcp.connections[0].forward) == [(0, 5)]


def test_ports_that_are_used_again_make_another_connection() -> None:
    bench = Bench()
    bench.feed([syn(999), data(0, b"old"), syn(70_000), data(0, b"new", isn=70_000)])
    assert [content(c.forward) for c in bench.tcp.connections] == [b"old", b"new"]


def test_both_directions_follow_a_port_that_is_used_again() -> None:
    bench = Bench()

    def answer(isn: int, ack: int) -> Segment:
        return Segment(flow=BACKWARD, sequence=isn, flags=SYN | ACK, acknowledgment=ack)

    def reply(isn: int, payload: bytes) -> Segment:
        return Segment(flow=BACKWARD, sequence=isn + 1, payload=payload)

    bench.feed([syn(999), answer(5, 1000), data(0, b"old"), reply(5, b"OLD")])
    bench.feed([syn(70_000), answer(9_000_000, 70_001)])
    bench.feed([data(0, b"new", isn=70_000), reply(9_000_000, b"NEW")])
    bench.finish()
    assert [(content(c.forward), content(c.backward)) for c in bench.tcp.connections] == [
        (b"old", b"OLD"),
        (b"new", b"NEW"),
    ]


@pytest.mark.parametrize("other_isn", [999, 70_000])
def test_syns_that_cross_open_one_connection(other_isn: int) -> None:
    bench = Bench()
    crossing = Segment(flow=BACKWARD, sequence=other_isn, flags=SYN)
    bench.feed([syn(), crossing, syn(), crossing, data(0, b"ab")])
    bench.feed([Segment(flow=BACKWARD, sequence=other_isn + 1, payload=b"cd")])
    bench.finish()
    [connection] = bench.tcp.connections
    assert (content(connection.forward), content(connection.backward)) == (b"ab", b"cd")


def test_a_repeated_syn_is_the_same_connection() -> None:
    bench = Bench()
    bench.feed([syn(), syn(), data(0, b"ab")])
    assert len(bench.tcp.connections) == 1


def test_a_reset_is_noted() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"ab"), data(2, b"", flags=RST)])
    assert bench.tcp.connections[0].reset_ns == bench.tcp.connections[0].ended_ns == 3000


def test_a_connection_ends_where_the_first_side_closes_it() -> None:
    bench = Bench()
    closed = data(2, b"", flags=FIN | ACK), Segment(flow=BACKWARD, sequence=1, flags=FIN | ACK)
    bench.feed([syn(), data(0, b"ab"), *closed])
    connection = bench.tcp.connections[0]
    assert (connection.forward.fin_ns, connection.backward.fin_ns) == (3000, 4000)
    assert connection.ended_ns == 3000


def test_without_a_syn_the_client_is_not_known_and_the_first_bytes_may_come_late() -> None:
    bench = Bench()
    bench.feed([data(2, b"cd")])
    bench.feed([data(0, b"ab")])
    connection = bench.tcp.connections[0]
    assert connection.client is None
    assert connection.forward.end is None
    bench.finish()
    assert content(connection.forward) == b"abcd"


def test_the_client_is_who_sent_the_syn() -> None:
    bench = Bench()
    bench.feed([Segment(flow=BACKWARD, sequence=7, flags=SYN | ACK, acknowledgment=1000), data(0, b"ab")])
    connection = bench.tcp.connections[0]
    assert connection.client is not None
    assert connection.client.flow == Flow(A, B)
    assert content(connection.client) == b"ab"


# --- several captures ---


def test_a_connection_in_two_captures_is_one_and_fills_its_holes() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"ab"), data(4, b"ef")], capture=0)
    bench.feed([syn(), data(0, b"ab"), data(2, b"cd"), data(4, b"ef"), data(6, b"gh")], capture=1)
    bench.finish()
    assert len(bench.tcp.connections) == 1
    stream = bench.tcp.connections[0].forward
    assert content(stream) == b"abcdefgh"
    assert not stream.holes
    origin = stream.origin
    assert origin is not None
    captures = [capture for capture, _, _ in stream.extent(origin, origin + 8).pieces]
    assert captures == [0, 1, 0, 1]  # each byte from the first capture that holds it


def test_a_second_capture_that_starts_late_joins_by_its_sequence_numbers() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"ab")], capture=0)
    bench.feed([data(1, b"bc")], capture=1)
    bench.finish()
    assert [content(c.forward) for c in bench.tcp.connections] == [b"abc"]


def test_a_port_used_again_in_two_captures_stays_two_connections() -> None:
    bench = Bench()
    both = [syn(999), data(0, b"old"), syn(70_000), data(0, b"new", isn=70_000)]
    bench.feed(both, capture=0)
    bench.feed(both, capture=1)
    bench.finish()
    assert [content(c.forward) for c in bench.tcp.connections] == [b"old", b"new"]


# --- places and times ---


def test_stamps_say_when_and_in_which_packet() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"ab"), data(2, b"cd"), data(4, b"ef")])
    stream = bench.tcp.connections[0].forward
    origin = stream.origin
    assert origin is not None
    assert stream.stamp(origin, origin + 2) == (2000, 2000, 0, 2, 2, 2)
    assert stream.stamp(origin + 1, origin + 5) == (2000, 4000, 0, 2, 2, 4)
    assert stream.location(origin + 3).packet == 3
    assert stream.location(origin + 3).offset == 3


def test_the_time_of_reordered_bytes_is_the_span_of_their_segments() -> None:
    bench = Bench()
    bench.feed([syn(), data(2, b"cd", time_ns=5), data(0, b"ab", time_ns=9), data(4, b"ef", time_ns=20)])
    stream = bench.tcp.connections[0].forward
    origin = stream.origin
    assert origin is not None
    assert stream.stamp(origin, origin + 4) == (5, 9, 0, 3, 2, 3)
    assert stream.stamp(origin, origin + 6) == (5, 20, 0, 3, 2, 4)


def test_released_bytes_are_still_compared_with_late_copies() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"abcd")])
    stream = bench.tcp.connections[0].forward
    assert stream.end is not None
    stream.release(stream.end)
    bench.feed([data(0, b"aXcd"), data(4, b"ef")])
    assert len(stream.conflicts) == 1
    assert stream.read(stream.end - 2, stream.end) == b"ef"


@pytest.mark.parametrize("count", [20_000])
def test_segments_in_reverse_order_take_linear_time(count: int) -> None:
    bench = Bench()
    bench.feed([syn()])
    bench.feed([data(at, b"x") for at in reversed(range(1, count))])
    bench.feed([data(0, b"x")])
    assert content(bench.tcp.connections[0].forward) == b"x" * count


def test_one_byte_far_ahead_costs_nothing() -> None:
    bench = Bench()
    bench.feed([syn(), data(0, b"a"), data(1 << 30, b"z")])
    bench.finish()
    assert holes(bench.tcp.connections[0].forward) == [(1, 1 << 30)]
