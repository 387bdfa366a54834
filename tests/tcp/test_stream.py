"""Reading a stream by position, against the bytes it was made from; writing is `test_tcp.py`'s."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.stream import Stream
from tests.builders import segment_block
from tests.tensorpipe.conversations import Hole, Network, Player, segments, stream_of
from tests.thorough import examples

DATA = bytes(range(256)) * 2


def lossy(holes: list[tuple[int, int]]) -> tuple[bytes, set[int]]:
    """The data with zeros where it was lost, and which positions that are."""
    lost = {at for a, b in holes for at in range(a, min(b, len(DATA)))}
    return bytes(0 if at in lost else byte for at, byte in enumerate(DATA)), lost


HOLES = st.lists(
    st.tuples(st.integers(0, 500), st.integers(1, 40)).map(lambda h: (h[0], h[0] + h[1])), max_size=4
)


@given(HOLES, st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(0, 512), st.integers(0, 512))
@settings(max_examples=examples(150), deadline=None)
def test_every_way_of_reading_agrees_with_the_bytes(
    holes: list[tuple[int, int]], sizes: list[int], one: int, two: int
) -> None:
    stream = stream_of(DATA, sizes=sizes, holes=holes)
    content, lost = lossy(holes)
    origin, end = stream.origin, stream.end
    assert origin is not None
    assert end is not None
    start, stop = min(one, two), max(one, two)
    assert end - origin == len(DATA)
    a, b = origin + start, origin + stop
    assert stream.read(a, b) == content[start:stop]
    inside = {at for at in lost if start <= at < stop}
    assert stream.missing(a, b) == len(inside)
    extent, _ = stream.place(a, b)
    for each in (stream.extent(a, b), extent):
        assert each.length == stop - start
        assert each.missing_bytes == len(inside)
        assert {start + at for x, y in each.missing for at in range(x, y)} == inside
        assert sum(length for _, _, length in each.pieces) == stop - start - len(inside)
        assert each.read(stream._source) == content[start:stop]
    hole = stream.next_hole(a)
    later = sorted(at for at in lost if at >= start)
    if later:
        assert hole is not None
        assert max(hole[0], a) == origin + later[0]
    else:
        assert hole is None


@given(HOLES, st.integers(0, 511))
@settings(max_examples=examples(60), deadline=None)
def test_places_and_times(holes: list[tuple[int, int]], at: int) -> None:
    stream = stream_of(DATA, sizes=(10,), holes=holes)
    _, lost = lossy(holes)
    origin = stream.origin
    assert origin is not None
    place = stream.location(origin + at)
    assert place.offset == at
    assert (place.packet is None) == (at in lost)
    first, last, capture, packet, lowest, highest = stream.stamp(origin + at, origin + at + 1)
    if at in lost:
        assert (first, last, capture, packet, lowest, highest) == (0, 0, -1, -1, -1, -1)
    else:
        assert packet == lowest == highest == place.packet
        assert first == last == 1000 * packet


@pytest.mark.parametrize("beside", [-40, -1, 0, 10, 512, 513, 600])
def test_nothing_is_missing_of_an_empty_range(beside: int) -> None:
    """A tensor of fewer than 16 bytes leaves lanes empty, and those may have ended sooner than the others."""
    stream = stream_of(DATA)
    assert stream.origin is not None
    extent, _ = stream.place(stream.origin + beside, stream.origin + beside)
    assert extent == Extent(0, ())


def test_a_range_beside_what_was_captured_is_missing() -> None:
    stream = stream_of(DATA)
    assert stream.origin is not None
    assert stream.end is not None
    for start, end, missing in (
        (stream.origin - 9, stream.origin - 2, ((0, 7),)),
        (stream.origin - 9, stream.origin + 2, ((0, 9),)),
        (stream.end - 3, stream.end + 4, ((3, 7),)),
        (stream.end + 3, stream.end + 4, ((0, 1),)),
        (stream.origin - 1, stream.end + 1, ((0, 1), (513, 514))),
    ):
        extent, _ = stream.place(start, end)
        assert (extent.length, extent.missing) == (end - start, missing)
        assert sum(length for _, _, length in extent.pieces) == extent.length - extent.missing_bytes


def test_a_range_that_is_partly_lost_has_the_times_of_the_rest() -> None:
    stream = stream_of(DATA, sizes=(10,), holes=[(0, 25)])
    origin = stream.origin
    assert origin is not None
    first, last, capture, packet, lowest, highest = stream.stamp(origin, origin + 40)
    assert (capture, first) == (0, 1000 * packet)
    assert last > first
    assert (lowest, highest) == (packet, last // 1000)


@given(st.lists(st.integers(0, 512), min_size=1, max_size=6), HOLES)
@settings(max_examples=examples(60), deadline=None)
def test_released_bytes_are_not_needed_for_later_ones(steps: list[int], holes: list[tuple[int, int]]) -> None:
    stream = stream_of(DATA, sizes=(7,), holes=holes)
    content, _ = lossy(holes)
    origin = stream.origin
    assert origin is not None
    for step in sorted(steps):
        stream.release(origin + step)
        assert stream.read(origin + step, origin + 512) == content[step:]
    stream.release(origin + 512)
    assert stream.runs == []
    assert stream.read(origin + 512, origin + 512) == b""


def broken_stream(pieces: int) -> Stream:
    """One byte captured, one lost, and so on."""
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    network.write(number, b"x" * (2 * pieces))
    holes = [Hole(number, True, 0, 0)]
    rows = [row for at, row in enumerate(segments(network, sizes=(1,), holes=holes)) if at % 2 == 0 or at < 3]
    player = Player(network)
    player.outcome.tcp.feed(segment_block(rows))
    list(player.outcome.tcp.finish())
    return player.outcome.tcp.connections[0].forward


def test_reading_on_among_many_holes() -> None:
    stream = broken_stream(8000)
    origin, end = stream.origin, stream.end
    assert origin is not None
    assert end is not None
    assert len(stream.holes) > 5000
    start = time.process_time()
    for at in range(origin, end - 8, 2):
        stream.missing(at, at + 8)
        stream.extent(at, at + 8)
        stream.next_hole(at)
    assert time.process_time() - start < 9


def test_copies_among_many_runs_that_nobody_released() -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    network.write(number, b"x" * 20_000)
    rows = segments(network, sizes=(2,), end=0)
    player = Player(network)
    for at in range(0, len(rows), 2):  # each block is a run of its own
        player.outcome.tcp.feed(segment_block(rows[at : at + 2]))
    start = time.process_time()
    for at in range(0, len(rows), 50):
        player.outcome.tcp.feed(segment_block(rows[at : at + 50]))
    assert time.process_time() - start < 9


def test_where_segments_end() -> None:
    stream = stream_of(DATA, sizes=[100], holes=[(250, 260)])
    origin = stream.origin
    assert origin is not None
    ends = {stream.segment_end(origin + at) - origin for at in range(len(DATA))}
    assert ends == {100, 200, 250, 260, 300, 400, 500, 512}
    assert stream.segment_end(origin + 255) == origin + 260
