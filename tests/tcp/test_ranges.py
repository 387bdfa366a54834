"""Ranges of captures and the bytes in them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from rpcinspect.tcp.ranges import CaptureBytes, Extent, SegmentRun, ranges_beside
from tests.builders import segment_block
from tests.tensorpipe.conversations import Segment

DATA = bytes(range(256)) * 2


@pytest.mark.parametrize(
    ("missing", "want"),
    [
        ((), b"abcdef"),
        (((0, 2),), b"\0\0abcd"),
        (((4, 6),), b"abcd\0\0"),
        (((0, 1), (1, 2), (3, 5)), b"\0\0a\0\0b"),
    ],
)
def test_an_extent_reads_zeros_where_bytes_are_missing(
    missing: tuple[tuple[int, int], ...], want: bytes
) -> None:
    source = CaptureBytes(lambda capture, offset, length: b"abcdef"[offset : offset + length])
    pieces: list[tuple[int, int, int]] = []
    at = taken = 0
    while at < 6:
        hole = next((h for h in missing if h[0] == at), None)
        if hole is not None:
            at = hole[1]
            continue
        pieces.append((0, taken, 1))
        at, taken = at + 1, taken + 1
    assert Extent(6, tuple(pieces), missing).read(source) == want
    there = [number for low, high in ranges_beside(missing, 6) for number in range(low, high)]
    assert there == [number for number, byte in enumerate(want) if byte]


def test_bytes_come_from_the_window_or_from_the_file() -> None:
    asked: list[tuple[int, int, int]] = []

    def pread(capture: int, offset: int, length: int) -> bytes:
        asked.append((capture, offset, length))
        return b"." * length

    source = CaptureBytes(pread)
    block = segment_block([Segment(flow=0, sequence=0, payload=b"hello")])
    source.show(block)
    assert source.read(0, 1020, 5) == b"hello"
    assert source.gather(0, [1020, 1023], [2, 2]) == b"helo"
    assert asked == []
    assert source.read(1, 1020, 5) == b"....."  # the same place in another file
    assert source.read(0, 1024, 2) == b".."  # beyond the window
    assert source.gather(0, [0, 10], [2, 3]) == b"....."  # close together: one read
    assert source.gather(0, [0, 100_000], [2, 3]) == b"....."
    assert asked == [(1, 1020, 5), (0, 1024, 2), (0, 0, 13), (0, 0, 2), (0, 100_000, 3)]


@pytest.mark.parametrize("lengths", [(8, 36, 5), (0, 7), (1448,), tuple(range(1, 200))])
def test_many_segments_are_joined_as_a_few_are(lengths: tuple[int, ...]) -> None:
    random = Random(7)
    payloads = [random.randbytes(length) for length in lengths * 80]
    block = segment_block([Segment(flow=0, sequence=0, payload=data) for data in payloads])
    source = CaptureBytes(lambda capture, offset, length: block.window[offset - 1000 :][:length])
    sizes, whole = np.array([*map(len, payloads)]), b"".join(payloads)
    starts = np.cumsum(sizes) - sizes
    run = SegmentRun(0, len(whole), 0, starts, block.offset, block.packet, block.time_ns)
    for hand in (False, True):
        if hand:
            source.show(block)
        assert run.read(0, len(whole), source) == whole
        assert run.read(3, len(whole) - 2, source) == whole[3:-2]


# --- nothing is quadratic ---


def run_of(*segments: tuple[int, int]) -> SegmentRun:
    """A run of (position, length) segments that lie 100 bytes apart in capture 0, each in its own packet."""
    starts = [start for start, _ in segments]
    count = len(segments)
    end = segments[-1][0] + segments[-1][1]
    columns = (
        starts,
        [100 * i for i in range(count)],
        list(range(1, count + 1)),
        [10 * i for i in range(count)],
    )
    return SegmentRun(starts[0], end, 0, *(np.array(column, dtype=np.int64) for column in columns))


def test_a_slice_of_a_run_begins_inside_a_segment() -> None:
    run = run_of((0, 10), (10, 10), (20, 10))
    part = run.slice(5, 25)
    assert (part.start, part.end) == (5, 25)
    assert part.lists() == ([5, 10, 20], [5, 100, 200], [1, 2, 3], [0, 10, 20], True)
    assert run.slice(0, 30) is run
    assert run.lists()[0] == [0, 10, 20]  # a slice is a copy


def test_a_missing_run_has_no_columns_in_any_slice() -> None:
    run = SegmentRun(0, 10)
    assert run.missing
    assert run.slice(2, 4).missing
    assert (run.slice(2, 4).start, run.slice(2, 4).end) == (2, 4)


def test_lists_can_be_forgotten() -> None:
    run = run_of((0, 4))
    first = run.lists()
    run.forget_lists()
    assert run.lists() == first
    assert run.lists() is not first


def test_what_is_read_again_has_one_budget_for_all() -> None:
    source = CaptureBytes(lambda *_: b"", most=10)
    assert [source.affords(4) for _ in range(4)] == [True, True, False, False]
    assert source.refused == 2
    assert all(CaptureBytes(lambda *_: b"").affords(1 << 60) for _ in range(2))


def test_extents_are_equal_where_the_same_bytes_are_missing() -> None:
    first, second = (Extent(4, ((0, 9, 2),), (hole,)) for hole in ((0, 2), (2, 4)))
    assert first == Extent(4, ((0, 9, 2),), ((0, 2),))
    assert [one == first for one in (first, second)] == [True, False]
