"""The next descriptor in a stream, from anywhere."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.control import DESCRIPTOR_SIGNATURE, frame
from rpcinspect.tensorpipe.control_types import ControlLayout
from rpcinspect.tensorpipe.search import MAX_DISTANCE, DescriptorSearch
from rpcinspect.tensorpipe.shape_table import ShapeTable
from tests.builders import segment_block
from tests.tensorpipe.conversations import (
    Network,
    Player,
    Said,
    descriptor_of,
    message_frames,
    segments,
    stream_of,
)
from tests.thorough import examples

LAYOUTS = [ControlLayout.V1_8, ControlLayout.V1_9]


def search(stream: Stream, start: int = 0, limits: Limits = DEFAULT_LIMITS) -> DescriptorSearch:
    assert stream.origin is not None
    return DescriptorSearch(stream, stream.origin + start, ShapeTable(limits).lengths, limits)


def found(stream: Stream, start: int = 0, limits: Limits = DEFAULT_LIMITS) -> list[int]:
    """Offsets of all descriptors."""
    out = []
    looking = search(stream, start, limits)
    assert stream.origin is not None
    while (at := looking.find()) is not None:
        out.append(at - stream.origin)
    return out


def message(identifier: int, layout: ControlLayout = ControlLayout.V1_9) -> bytes:
    return message_frames(Said(id=identifier, payload=b"p" * identifier), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_descriptor_is_found(layout: ControlLayout) -> None:
    parts = [message(n, layout) for n in (1, 60, 3)]
    edges = [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    assert found(stream_of(b"".join(parts))) == edges
    noise = bytes(range(256))
    assert found(stream_of(noise + b"".join(parts))) == [256 + edge for edge in edges]


@pytest.mark.parametrize("start", range(0, 70, 3))
def test_a_descriptor_that_began_before_is_not_found(start: int) -> None:
    parts = [message(1), message(2)]
    wanted = [edge for edge in (0, len(parts[0])) if edge >= start]
    assert found(stream_of(b"".join(parts)), start) == wanted


@pytest.mark.parametrize("at", range(0, 120, 2))
def test_a_hole_hides_only_the_descriptor_that_it_is_in(at: int) -> None:
    parts = [message(1), message(40), message(3)]
    edges = [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    head = len(frame(descriptor_of(Said(id=1, payload=b"p"), ControlLayout.V1_9, "basic")))
    data = b"".join(parts)
    got = found(stream_of(data, holes=[(at, at + 2)]))
    for edge in edges:
        hidden = edge < at + 2 and at < edge + head
        # a length between the payloads may be hidden too, which contradicts nothing
        assert (edge in got) == (not hidden)


def test_the_lengths_behind_must_be_those_in_the_descriptor() -> None:
    head = frame(descriptor_of(Said(), ControlLayout.V1_9, "basic"))
    assert found(stream_of(head + b"\xff" * 100)) == []
    body = message_frames(Said())[len(head) :]
    for at in (0, 12, 28):  # of the type, the id, the payload
        wrong = bytearray(body)
        wrong[at] ^= 1
        assert found(stream_of(head + bytes(wrong))) == []
        assert found(stream_of(head + bytes(wrong), holes=[(len(head) + at, len(head) + at + 1)])) == [0]


def test_a_stream_that_ends_behind_a_descriptor_confirms_what_is_there() -> None:
    whole = message_frames(Said())
    head = len(frame(descriptor_of(Said(), ControlLayout.V1_9, "basic")))
    for size in range(len(whole) + 1):
        assert found(stream_of(whole[:size] or b"\xff")) == ([0] if size >= head else [])


@given(st.lists(st.integers(1, 70), min_size=1, max_size=6), st.binary(max_size=40))
@settings(max_examples=examples(40), deadline=None)
def test_how_a_stream_grows_does_not_matter(sizes: list[int], noise: bytes) -> None:
    network = Network()
    number = network.connect("10.0.0.1", "10.0.0.2:5000")
    data = noise + message(3) + b"\xb9\x03" + noise + message(50) + message(2, ControlLayout.V1_8)
    network.write(number, data)
    player = Player(network)
    looking: DescriptorSearch | None = None
    out = []
    for row in segments(network, sizes=sizes):
        block = segment_block([row], window_offset=player._base)
        player._windows.append(block.window)
        player._base += len(block.window)
        player.outcome.tcp.feed(block)
        stream = player.outcome.tcp.connections[0].forward
        looking = looking or search(stream)
        before = looking.needed
        while (at := looking.find()) is not None:
            assert before <= at
            out.append(at)
        assert looking.position - MAX_DISTANCE <= looking.needed <= looking.position
        stream.release(looking.needed)
    assert looking is not None
    list(player.outcome.tcp.finish())
    while (at := looking.find()) is not None:
        out.append(at)
    assert [at - (stream.origin or 0) for at in out] == found(stream_of(data))


def test_go_on_searches_from_there() -> None:
    data = message(1) + message(2)
    stream = stream_of(data)
    looking = search(stream)
    first = looking.find()
    assert first is not None
    looking.go_on(first)
    assert looking.needed == first
    assert looking.find() == first
    looking.go_on(first + 1)
    assert looking.find() == first + len(message(1))
    assert looking.find() is None


def test_a_descriptor_over_the_limit_is_passed_over() -> None:
    data = message_frames(Said(tensors=(b"",) * 30)) + message(2)
    assert found(stream_of(data), limits=Limits(control_frame_bytes=100)) == [len(data) - len(message(2))]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_work_is_bounded(layout: ControlLayout) -> None:
    """Many candidates, each of which announces half of the stream."""
    size = 1 << 20
    gap = b"" if layout is ControlLayout.V1_9 else b"\xb8\x04"
    fake = (size // 2).to_bytes(8, "little") + gap + DESCRIPTOR_SIGNATURE
    stream = stream_of(fake * (size // len(fake)) + message(2), sizes=(60_000,))
    start = time.perf_counter()
    assert found(stream) == [size // len(fake) * len(fake)]
    assert time.perf_counter() - start < 4
