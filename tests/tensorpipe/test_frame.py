"""Lengths and bodies of frames by position."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.tensorpipe.control import frame
from rpcinspect.tensorpipe.frame import BUFFER_BYTES, FrameCursor
from tests.tensorpipe.conversations import Network, Player, segments, stream_of
from tests.thorough import examples


def cursor_of(data: bytes, **how: object) -> FrameCursor:
    stream = stream_of(data, **how)  # type: ignore[arg-type]
    assert stream.origin is not None
    return FrameCursor(stream, stream.origin)


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 50), min_size=1, max_size=4))
@settings(max_examples=examples(60), deadline=None)
def test_bodies_come_out_as_they_went_in(bodies: list[bytes], sizes: list[int]) -> None:
    cursor = cursor_of(b"".join(map(frame, bodies)) or b"\1", sizes=sizes)
    for body in bodies:
        assert cursor.length(cursor.position) == len(body)
        assert cursor.body(1000) == body
    assert cursor.body(1000) is None


def test_large_frames_and_those_at_the_edge_of_the_buffer() -> None:
    bodies = [b"a" * (BUFFER_BYTES - 12), b"b" * 30, b"c" * (2 * BUFFER_BYTES), b""]
    cursor = cursor_of(b"".join(map(frame, bodies)))
    for body in bodies:
        assert cursor.body(1 << 30) == body
        cursor.release()
    assert cursor.available() == 0


@pytest.mark.parametrize("size", range(13))
def test_a_frame_that_is_not_there_yet(size: int) -> None:
    whole = frame(b"hello")
    cursor = cursor_of(whole[:size] or b"\5")
    assert cursor.length(cursor.position) == (5 if size >= 8 else None)
    before = cursor.position
    assert cursor.body(100) is None
    assert cursor.position == before


@pytest.mark.parametrize("length", [101, 2**31, 2**63, 2**64 - 1])
def test_a_frame_over_the_limit_has_a_length_but_no_body(length: int) -> None:
    cursor = cursor_of(length.to_bytes(8, "little") + b"x" * 200)
    assert cursor.length(cursor.position) == length
    assert cursor.body(100) is None


def test_damage_is_told_of_the_frame_only() -> None:
    cursor = cursor_of(frame(b"hello") * 3, holes=[(15, 16)])
    assert not cursor.damaged(13)
    assert cursor.damaged(16)
    assert cursor.body(100) == b"hello"
    assert cursor.damaged(13)


def test_a_stream_of_which_nothing_is_settled() -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    network.write(number, b"abc")
    player = Player(network)
    player.feed(segments(network, syn=False, end=0))
    stream = player.outcome.tcp.connections[0].forward
    cursor = FrameCursor(stream, 0)
    assert (cursor.available(), cursor.length(0), cursor.body(10)) == (0, None, None)


def test_growth_is_seen_although_a_part_was_buffered() -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    network.write(number, frame(b"hello") + frame(b"world"))
    rows = segments(network, sizes=(9,), end=0)
    player = Player(network)
    player.feed(rows[:3])
    stream = player.outcome.tcp.connections[0].forward
    assert stream.origin is not None
    cursor = FrameCursor(stream, stream.origin)
    assert cursor.length(cursor.position) == 5
    assert cursor.body(10) is None
    player.feed(rows[3:])
    assert cursor.body(10) == b"hello"
    assert cursor.body(10) == b"world"
