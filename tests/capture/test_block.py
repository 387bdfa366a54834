"""Blocks: what they count, and columns made from anything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rpcinspect.capture.block import Direction, PacketBlock, SegmentBlock, TcpBlock, as_int64


def packets(times: Sequence[int]) -> PacketBlock:
    count = len(times)
    return PacketBlock(
        capture=0,
        first_number=1,
        window=bytes(10 * count),
        window_offset=24,
        offset=as_int64([24 + 10 * n for n in range(count)]),
        caplen=as_int64([10] * count),
        length=as_int64([12] * count),
        time_ns=as_int64(times),
        link_type=np.ones(count, dtype=np.uint16),
    )


def segments(count: int, stands_for: int) -> TcpBlock:
    column = as_int64(range(count))
    return TcpBlock(
        packets=stands_for,
        times=(5, 9),
        other={"no TCP": stands_for - count},
        directions=[Direction(b"\x0a\0\0\1", 1, b"\x0a\0\0\2", 2)],
        segments=SegmentBlock(
            capture=1,
            window=b"",
            window_offset=0,
            packet=column + 1,
            time_ns=column,
            flow=np.zeros_like(column),
            sequence=column,
            acknowledgment=column,
            flags=np.zeros(count, dtype=np.uint8),
            offset=column,
            captured=column,
            length=column,
        ),
    )


def test_a_block_of_packets_counts_its_rows() -> None:
    block = packets([7, 3, 5])  # as captures are: not always in order
    assert (len(block), block.packets, block.times) == (3, 3, (3, 7))
    assert all(type(time) is int for time in block.times)


@pytest.mark.parametrize(("count", "stands_for"), [(0, 4), (3, 3), (5, 3)])
def test_a_block_of_segments_counts_segments_and_packets(count: int, stands_for: int) -> None:
    """Packets without TCP, and tunnels that hold two segments."""
    block = segments(count, stands_for)
    assert (len(block.segments), block.packets, block.times) == (count, stands_for, (5, 9))
    assert block.capture == 1


def test_blocks_are_told_apart_by_what_they_are_not_by_what_they_hold() -> None:
    """Comparing columns would give a column."""
    one, other = packets([1]), packets([1])
    assert one == one
    assert one != other
    assert len({id(one), id(other)}) == 2


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3],
        (1, 2, 3),
        range(1, 4),
        np.array([1, 2, 3], dtype=">u4"),
        np.array([1, 2, 3], dtype=np.uint8),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_column_of_anything(values: object) -> None:
    column = as_int64(values)
    assert (column.dtype, column.tolist()) == (np.dtype(np.int64), [1, 2, 3])


def test_a_column_of_int64_is_not_copied() -> None:
    column = np.arange(3, dtype=np.int64)
    assert as_int64(column) is column
    assert len(as_int64([])) == 0


def test_directions_are_keys() -> None:
    assert Direction(b"a", 1, b"b", 2) == Direction(b"a", 1, b"b", 2)
    assert len({Direction(b"a", 1, b"b", 2), Direction(b"b", 2, b"a", 1)}) == 2
