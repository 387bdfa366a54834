"""Tensors and the frames that carry them, lane by lane."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.channel import Channel
from rpcinspect.tensorpipe.channel_kinds import CHANNELS, CUDA_CHUNK_BYTES, INVISIBLE, MPT_LANES
from rpcinspect.tensorpipe.control import frame
from rpcinspect.tensorpipe.control_types import ControlLayout, TpDescriptor, TpDevice, TpTensorDescriptor
from rpcinspect.tensorpipe.records import Pipe, Placement, TpMessage, TpTensor
from tests.tensorpipe.conversations import stream_of
from tests.thorough import examples

FLOW = Flow(Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2))
CPU = TpDevice("cpu", 0)


def message() -> TpMessage:
    descriptor = TpDescriptor(b"", (), ())
    pipe = Pipe(0, FLOW)
    return TpMessage(
        pipe,
        True,
        descriptor,
        ControlLayout.V1_9,
        b"",
        (),
        None,
        [],
        0,
        10**12,
        0,
        0,
        1,
        1,
        1,
        FLOW,
        0,
        0,
        False,
    )


def tensor(length: int) -> TpTensor:
    descriptor = TpTensorDescriptor(length=length, source_device=CPU, target_device=CPU)
    return TpTensor(descriptor, Placement.MISSING, None)


class Bench:
    """One lane of `basic` whose stream is all there, and was closed in order."""

    def __init__(
        self,
        data: bytes,
        *,
        holes: list[tuple[int, int]] | None = None,
        start_known: bool = True,
        patient: bool = True,
    ) -> None:
        self.stream = stream_of(data, sizes=(25,), holes=holes or [])
        self.channel = Channel("basic", patient)
        self.lane = self.channel.lanes[0][0]
        assert self.stream.origin is not None
        self.lane.attach(self.stream, self.stream.origin if start_known else None)
        self.tensors: list[TpTensor] = []
        self.messages: list[TpMessage] = []

    def expect(self, *lengths: int) -> None:
        one = message()
        for length in lengths:
            self.tensors.append(tensor(length))
            self.channel.expect(0, one, self.tensors[-1])
        self.messages.append(one)

    def found(self) -> list[bytes | str]:
        out: list[bytes | str] = []
        for one in self.tensors:
            certain = one.placement is Placement.CERTAIN
            assert certain == (one.extent is not None)
            out.append(one.extent.read(self.stream._source) if one.extent else one.placement.value)
        return out


def test_order_is_all_that_counts() -> None:
    bench = Bench(frame(b"abc") + frame(b"0123456789") + frame(b"xyz"))
    bench.expect(3, 10)
    bench.expect(3)
    assert bench.lane.advance() == bench.messages
    assert bench.found() == [b"abc", b"0123456789", b"xyz"]
    assert (bench.lane.frame_bytes, bench.lane.tensor_bytes) == (24, 16)
    assert bench.messages[0].first_ns < 10**12
    assert bench.messages[0].last_ns > 0


def test_a_message_is_done_with_its_last_tensor() -> None:
    bench = Bench(frame(b"abc") + frame(b"defg"))
    bench.expect(3, 4, 5)
    assert bench.lane.advance() == []
    assert bench.messages[0].waiting == 1
    assert bench.lane.finish(True) == bench.messages
    assert bench.found() == [b"abc", b"defg", "missing"]


def test_a_frame_of_another_length_ends_certainty() -> None:
    bench = Bench(frame(b"abc") + frame(b"defg") + frame(b"xyz"))
    bench.expect(3)
    bench.expect(3)
    bench.expect(3)
    bench.lane.finish(True)
    assert bench.found() == [b"abc", "uncertain", "uncertain"]
    assert bench.lane.doubts == "a tensor of 3 bytes was due, a frame of 4 bytes is there"


@pytest.mark.parametrize("complete", [True, False])
def test_a_loss_leaves_what_came_before_it_and_what_ends_the_stream(complete: bool) -> None:
    bench = Bench(frame(b"abc") + frame(b"lost") + frame(b"def"))
    bench.expect(3)
    bench.lane.lose()
    bench.expect(3)
    bench.lane.finish(complete)
    assert bench.found() == [b"abc", b"def" if complete else "uncertain"]


def test_between_two_losses_only_one_place_will_do() -> None:
    bench = Bench(b"".join(map(frame, (b"a", b"bb", b"ccc", b"dd", b"e", b"ff"))))
    bench.expect(1)
    bench.lane.lose()
    bench.expect(3)  # there is one frame of three bytes, and there are two of two
    bench.lane.lose()
    bench.expect(2)
    bench.lane.lose()
    bench.expect(2)
    bench.lane.finish(True)
    assert bench.found() == [b"a", b"ccc", b"dd", b"ff"]


def test_where_two_places_will_do_none_is_taken() -> None:
    bench = Bench(b"".join(map(frame, (b"a", b"bb", b"cc", b"d"))))
    bench.expect(1)
    bench.lane.lose()
    bench.expect(2)
    bench.lane.lose()
    bench.expect(1)
    bench.lane.finish(True)
    assert bench.found() == [b"a", "uncertain", b"d"]


def test_a_lane_that_began_out_of_sight_is_read_from_its_end() -> None:
    bench = Bench(b"xyz" + frame(b"abc") + frame(b"defg"), start_known=False)
    bench.expect(5, 3, 4)
    bench.lane.finish(True)
    assert bench.found()[1:] == [b"abc", b"defg"]


def test_who_is_not_patient_gets_doubts_at_once() -> None:
    bench = Bench(frame(b"abc") + frame(b"lost") + frame(b"def"), patient=False)
    bench.expect(3)
    bench.lane.lose()
    bench.expect(3)
    assert len(bench.lane.advance()) == 2
    assert bench.found() == [b"abc", "uncertain"]


FRAMES = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12)
"""(bytes, whether the message of this frame was captured)."""


@given(
    FRAMES,
    st.lists(st.tuples(st.integers(0, 120), st.integers(1, 12)), max_size=2),
    st.booleans(),
    st.booleans(),
    st.integers(0, 4),
)
@settings(max_examples=examples(300), deadline=None)
def test_what_is_certain_is_true(
    frames: list[tuple[int, bool]],
    holes: list[tuple[int, int]],
    start_known: bool,
    patient: bool,
    settled: int,
) -> None:
    """Whatever was lost of messages and of the lane: no tensor gets the bytes of another one."""
    bodies = [bytes([65 + number]) * size for number, (size, _) in enumerate(frames)]
    data = b"".join(map(frame, bodies))
    bench = Bench(data, holes=[(a, a + n) for a, n in holes], start_known=start_known, patient=patient)
    if not start_known:
        bench.lane.lose()
    truth = []
    lost = False
    for number, (body, (size, seen)) in enumerate(zip(bodies, frames, strict=True)):
        if seen:
            if lost:
                bench.lane.lose()
            bench.expect(size)
            truth.append(body)
        lost = not seen
        if number == settled:
            bench.lane.advance()
    done = bench.lane.finish(frames[-1][1])
    assert all(one.waiting == 0 for one in done)
    for found, body in zip(bench.found(), truth, strict=True):
        if isinstance(found, bytes):
            assert all(got in (0, want) for got, want in zip(found, body, strict=True))


@pytest.mark.parametrize("length", [2**62, 2**63, 2**64 - 1])
def test_absurd_lengths_between_losses(length: int) -> None:
    bench = Bench(b"".join(map(frame, (b"a", b"bb", b"ccc"))))
    bench.expect(1)
    bench.lane.lose()
    bench.expect(length)
    bench.lane.lose()
    bench.expect(3)
    bench.lane.finish(True)
    assert bench.found() == [b"a", "uncertain", b"ccc"]


def test_many_losses_take_linear_time() -> None:
    count = 6000
    bench = Bench(frame(b"ab") * (2 * count))
    start = time.process_time()
    for _ in range(count):
        bench.expect(2)
        bench.lane.lose()
    bench.expect(2)
    bench.lane.finish(True)
    assert time.process_time() - start < 12


@pytest.mark.parametrize("hole", [(0, 8), (3, 5), (8, 11), (2, 9), (11, 14), (19, 25), (0, 30)])
def test_holes_cost_only_the_bytes_in_them(hole: tuple[int, int]) -> None:
    data = frame(b"abc") + frame(b"defgh") + frame(b"ij")
    bench = Bench(data, holes=[hole])
    bench.expect(3, 5, 2)
    bench.lane.finish(True)
    lossy = bytes(0 if hole[0] <= at < hole[1] else byte for at, byte in enumerate(data))
    parts = [lossy[8:11], lossy[19:24], lossy[32:34]]
    assert bench.found() == [part if any(part) else "missing" for part in parts]
    missing = [sum(a <= at < b for at in range(*hole)) for a, b in ((8, 11), (19, 24), (32, 34))]
    assert [one.missing_bytes for one in bench.tensors] == missing
    assert bench.lane.tensor_bytes == 10 - sum(missing)


@pytest.mark.parametrize("size", range(24))
def test_the_end_of_a_capture_keeps_what_is_there(size: int) -> None:
    data = frame(b"abc") + frame(b"defgh")
    bench = Bench(data[:size] or b"\3")
    bench.expect(3, 5)
    assert bench.lane.finish(True) == bench.messages
    found = bench.found()
    if size <= 8:
        assert found == ["missing", "missing"]
    elif size < 11:
        assert found == [b"abc"[: size - 8] + bytes(11 - size), "missing"]
    elif size <= 19:
        assert found == [b"abc", "missing"]
    else:
        assert found == [b"abc", b"defgh"[: size - 19] + bytes(24 - size)]
    assert bench.lane.tensor_bytes == max(0, min(3, size - 8)) + max(0, size - 19)


@pytest.mark.parametrize("length", [2**31, 2**60, 2**64 - 1])
@pytest.mark.parametrize("name", sorted(CHANNELS))
def test_absurd_lengths(name: str, length: int) -> None:
    channel = Channel(name)
    one, absurd = message(), tensor(length)
    channel.expect(0, one, absurd)
    for lane in channel.lanes[0]:
        stream = stream_of(frame(b"abc") * 3)
        assert stream.origin is not None
        lane.attach(stream, stream.origin)
    done = [m for lane in channel.lanes[0] for m in [*lane.advance(), *lane.finish(True)]]
    assert done == [one]
    assert absurd.placement is Placement.UNCERTAIN


def test_many_absurd_tensors_keep_the_queue_small() -> None:
    channel = Channel("cuda_basic")
    one = message()
    for _ in range(100):
        channel.expect(0, one, tensor(1 << 38))
    assert len(channel.lanes[0][0].queue) < (1 << 20) + 200


@given(st.integers(0, 1 << 40))
@settings(max_examples=examples(200), deadline=None)
def test_mpt_takes_every_byte_once(length: int) -> None:
    parts = CHANNELS["mpt_uv"].split(length)
    assert [lane for lane, _ in parts] == list(range(MPT_LANES))
    assert sum(size for _, size in parts) == length
    assert max(size for _, size in parts) - min(size for _, size in parts) <= 1


def test_mpt_of_four_bytes_fills_every_fourth_lane() -> None:
    assert [lane for lane, size in CHANNELS["mpt_uv"].split(4) if size] == [3, 7, 11, 15]


@pytest.mark.parametrize(
    ("length", "sizes"),
    [
        (1, [1]),
        (CUDA_CHUNK_BYTES, [CUDA_CHUNK_BYTES]),
        (CUDA_CHUNK_BYTES + 1, [CUDA_CHUNK_BYTES, 1]),
        (3 * CUDA_CHUNK_BYTES - 1, [CUDA_CHUNK_BYTES, CUDA_CHUNK_BYTES, CUDA_CHUNK_BYTES - 1]),
    ],
)
def test_cuda_basic_cuts_tensors_into_chunks(length: int, sizes: list[int]) -> None:
    assert CHANNELS["cuda_basic"].split(length) == [(0, size) for size in sizes]


def test_parts_of_several_lanes_are_joined_in_order() -> None:
    channel = Channel("mpt_uv")
    data = bytes(range(100))
    one, whole = message(), tensor(100)
    channel.expect(1, one, whole)
    streams = []
    for number in reversed(range(MPT_LANES)):
        part = data[100 * number // 16 : 100 * (number + 1) // 16]
        stream = stream_of(frame(part), holes=[(9, 10)] if number == 2 else [])
        assert stream.origin is not None
        streams.append(stream)
        lane = channel.lanes[1][number]
        lane.attach(stream, stream.origin)
        assert lane.advance() == ([one] if number == 0 else [])
    assert whole.extent is not None
    assert whole.extent.missing == ((13, 14),)
    got = b"".join(streams[0]._source.read(*piece) for piece in whole.extent.pieces[:1])
    assert whole.extent.length == 100
    assert len(got) == whole.extent.pieces[0][2]


def test_a_lane_without_a_connection_is_missing() -> None:
    channel = Channel("basic")
    one, lost = message(), tensor(3)
    channel.expect(0, one, lost)
    assert channel.lanes[0][0].advance() == []
    assert channel.lanes[0][0].finish(True) == [one]
    assert lost.placement is Placement.MISSING


def test_no_channel_is_both_visible_and_invisible() -> None:
    assert not CHANNELS.keys() & INVISIBLE.keys()
