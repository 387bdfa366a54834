"""Descriptors that were not captured: written again where nothing else can have been there, else left out."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.limits import DEFAULT_LIMITS
from rpcinspect.rpc.tensor import TensorMeta, storage_lengths, to_tensor_table
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.control import frame, write_descriptor
from rpcinspect.tensorpipe.control_types import (
    ControlLayout,
    TpDescriptor,
    TpDevice,
    TpPayload,
    TpTensorDescriptor,
)
from rpcinspect.tensorpipe.demux import Demux
from rpcinspect.tensorpipe.descriptor import DescriptorReader
from rpcinspect.tensorpipe.rebuild import MAX_RANGE_BYTES, ReadTable, rebuild
from rpcinspect.tensorpipe.records import Pipe, TpMessage
from rpcinspect.tensorpipe.shape_table import ShapeTable
from tests.tensorpipe.conversations import (
    NO_TENSORS,
    Hole,
    Network,
    PipeTalk,
    Player,
    Said,
    descriptor_of,
    message_frames,
    segments,
    stream_of,
)
from tests.thorough import examples

FLOW = Flow(Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2))


def table(*lengths: int, device: str = "cpu") -> bytes:
    """Of tensors of that many bytes, each in a storage of its own."""
    metas = [
        TensorMeta(dtype="uint8", sizes=(n,), strides=(1,), storage=i, storage_numel=n, device=device)
        for i, n in enumerate(lengths)
    ]
    return to_tensor_table(metas)


def said(identifier: int = 1, payload: bytes = b"payload", lengths: Sequence[int] = ()) -> Said:
    """A message as torch writes it."""
    return Said(
        id=identifier,
        payload=payload,
        table=table(*lengths) if lengths else NO_TENSORS,
        tensors=tuple(bytes(n) for n in lengths),
    )


def head(message: Said) -> int:
    """Bytes of the descriptor's frame."""
    return len(frame(descriptor_of(message, ControlLayout.V1_9, "basic")))


def read(
    data: bytes, holes: Sequence[tuple[int, int]] = (), read_table: ReadTable | None = storage_lengths
) -> tuple[list[TpMessage], list[str]]:
    """Messages of a stream, and what is said of it."""
    stream = stream_of(data, holes=holes, sizes=(60_000,))
    assert stream.origin is not None
    shapes = ShapeTable(DEFAULT_LIMITS, read_table)
    reader = DescriptorReader(Pipe(0, FLOW), True, stream, stream.origin, shapes, DEFAULT_LIMITS)
    found = list(reader.finish())
    return found, [problem.reason for problem in reader.problems]


def rebuilt(stream: Stream, start: int, end: int, read_table: ReadTable = storage_lengths) -> bytes | None:
    """`rebuild`, positions counted from the start of the stream."""
    assert stream.origin is not None
    return rebuild(stream, stream.origin + start, stream.origin + end, read_table)


def lossy(message: Said, *holes: tuple[int, int]) -> bytes | None:
    """What `rebuild` makes of this message with these holes."""
    data = message_frames(message)
    return rebuilt(stream_of(data, holes=holes, sizes=(60_000,)), 0, len(data))


# --- a packet that held just the descriptor ---

FIRST, NEXT = said(1, b"first"), said(3, b"next")


@pytest.mark.parametrize("lengths", [(), (0,), (5,), (127, 128), (1 << 16, 0, 1 << 40), (3,) * 40], ids=str)
@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 255, 256, 300, 65_535, 65_536, 70_000])
def test_a_lost_descriptor_costs_nothing(size: int, lengths: tuple[int, ...]) -> None:
    lost = Said(id=2, payload=b"x" * size, table=table(*lengths) if lengths else NO_TENSORS)
    body = _descriptor(lost, lengths)
    data = frame(body) + b"".join(map(frame, lost.all_payloads))
    at = len(message_frames(FIRST))
    messages, reasons = read(
        message_frames(FIRST) + data + message_frames(NEXT), [(at, at + len(frame(body)))]
    )
    assert [m.payloads for m in messages] == [m.all_payloads for m in (FIRST, lost, NEXT)]
    middle = messages[1]
    assert middle.descriptor_body == body
    assert [t.length for t in middle.descriptor.tensors] == list(lengths)
    assert (middle.payload_missing, middle.after_loss, middle.identified) == (None, False, True)
    assert (middle.offset, middle.length) == (at, len(data))
    assert not messages[2].after_loss
    assert reasons == ["a descriptor was not captured whole"]


def _descriptor(message: Said, lengths: Sequence[int]) -> bytes:
    """Its descriptor, without bytes for tensors of any length."""
    cpu = TpDevice("cpu", 0)
    tensors = tuple(TpTensorDescriptor(length=n, source_device=cpu, target_device=cpu) for n in lengths)
    payloads = tuple(TpPayload(len(p)) for p in message.all_payloads)
    return write_descriptor(TpDescriptor(b"", payloads, tensors), ControlLayout.V1_9)


@pytest.mark.parametrize("lost", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_any_descriptors_may_be_lost(lost: tuple[int, ...]) -> None:
    messages = [said(n, b"payload" * n, (n, 7)) for n in range(3)]
    holes, at = [], 0
    for number, message in enumerate(messages):
        if number in lost:
            holes.append((at, at + head(message)))
        at += len(message_frames(message))
    data = b"".join(map(message_frames, messages))
    found, reasons = read(data, holes)
    if len(holes) == 1:
        assert [m.payloads for m in found] == [m.all_payloads for m in messages]
        assert reasons == ["a descriptor was not captured whole"]
    else:  # several messages in one range: nobody can tell, and nothing is made up
        assert all(m.payloads in [one.all_payloads for one in messages] for m in found)
    assert len(reasons) >= 1


def test_nothing_is_rebuilt_where_nobody_reads_tables() -> None:
    data = message_frames(FIRST) + message_frames(said(2)) + message_frames(NEXT)
    at = len(message_frames(FIRST))
    found, _ = read(data, [(at, at + head(said(2)))], None)
    assert [m.payloads[1][0] for m in found] == [1, 3]
    assert found[1].after_loss


# --- what was captured of it must agree ---

MESSAGE = said(2, b"some payload", (5, 300))
TYPE_AND_ID = 12 + 16


@pytest.mark.parametrize("start", range(0, head(MESSAGE), 5))
def test_any_part_of_the_descriptor_may_be_lost(start: int) -> None:
    body = descriptor_of(MESSAGE, ControlLayout.V1_9, "basic")
    for end in range(start + 1, head(MESSAGE) + 1, 7):
        assert lossy(MESSAGE, (start, end)) == body


@pytest.mark.parametrize("at", range(head(MESSAGE)))
def test_a_captured_byte_that_is_another_one_refuses(at: int) -> None:
    data = bytearray(message_frames(MESSAGE))
    data[at] ^= 0x10
    other = 0 if at else head(MESSAGE) - 1
    stream = stream_of(bytes(data), holes=[(other, other + 1)])
    assert rebuilt(stream, 0, len(data)) is None


def test_lengths_of_type_and_id_may_be_lost_but_not_that_of_the_payload() -> None:
    body = descriptor_of(MESSAGE, ControlLayout.V1_9, "basic")
    length = head(MESSAGE) + TYPE_AND_ID
    assert lossy(MESSAGE, (0, length)) == body  # their values too: they are missing then
    for at in range(length, length + 8):
        assert lossy(MESSAGE, (0, head(MESSAGE)), (at, at + 1)) is None
    assert lossy(MESSAGE, (0, head(MESSAGE)), (length + 8, length + 10)) == body


def test_the_table_must_be_whole() -> None:
    data = message_frames(MESSAGE)
    begin = len(data) - len(MESSAGE.table) - 8
    for at in range(begin, len(data)):
        assert lossy(MESSAGE, (0, head(MESSAGE)), (at, at + 1)) is None


def test_a_type_that_was_lost_too_leaves_lengths_for_the_lanes() -> None:
    at = len(message_frames(FIRST))
    data = message_frames(FIRST) + message_frames(MESSAGE) + message_frames(NEXT)
    messages, reasons = read(data, [(at, at + head(MESSAGE) + 10)])
    assert [m.identified for m in messages] == [True, False, True]
    assert [t.length for t in messages[1].descriptor.tensors] == [5, 300]
    assert not messages[2].after_loss
    assert any("type or id" in reason for reason in reasons)


# --- what is no single message ---


def test_two_messages_in_one_range_are_refused() -> None:
    one, other = said(2, b"one", (5,)), said(3, b"other", (6,))
    data = message_frames(one) + message_frames(other)
    second = len(message_frames(one))
    hole = second, second + head(other)
    for holes in ([(0, head(one)), hole], [(0, second + head(other))], [(0, second), hole], [hole]):
        assert rebuilt(stream_of(data, holes=holes), 0, len(data)) is None


@pytest.mark.parametrize("cut", [1, 7, 8, 20])
def test_a_range_that_ends_elsewhere_is_refused(cut: int) -> None:
    data = message_frames(MESSAGE) + message_frames(NEXT)
    end = len(message_frames(MESSAGE))
    stream = stream_of(data, holes=[(0, head(MESSAGE))])
    assert rebuilt(stream, 0, end) is not None
    assert rebuilt(stream, 0, end - cut) is None
    assert rebuilt(stream, 0, end + cut) is None
    assert rebuilt(stream, cut, end) is None


def test_another_layout_is_refused() -> None:
    """1.8 names the channel of each tensor in the descriptor, which nothing else tells."""
    for lengths in ((), (5, 6)):
        old = said(2, b"payload", lengths)
        size = len(frame(descriptor_of(old, ControlLayout.V1_8, "basic")))
        data = message_frames(old, ControlLayout.V1_8)
        assert rebuilt(stream_of(data, holes=[(0, size)]), 0, len(data)) is None


def test_tensors_for_another_device_are_refused() -> None:
    cuda = Said(id=2, table=table(5), tensors=(b"12345",), device=TpDevice("cuda", 0))
    assert lossy(cuda, (0, head(cuda))) is None
    cuda = Said(id=2, table=table(5, device="cuda:0"), tensors=(b"12345",))
    assert lossy(cuda, (0, head(cuda))) is None


def test_bytes_before_the_range_that_were_let_go_are_not_asked_for() -> None:
    data = message_frames(MESSAGE)
    stream = stream_of(data, holes=[(0, head(MESSAGE))], sizes=(60_000,))
    assert stream.origin is not None
    assert stream.end is not None
    stream.release(stream.end - 3)
    assert rebuilt(stream, 0, len(data)) is None


@pytest.mark.parametrize("over", [0, 1])
def test_ranges_are_bounded(over: int) -> None:
    size = MAX_RANGE_BYTES - len(message_frames(said(2, b"x" * 70_000))) + 70_000 + over
    message = said(2, b"x" * size)
    assert len(message_frames(message)) == MAX_RANGE_BYTES + over
    assert (lossy(message, (0, head(message))) is None) == bool(over)
    at = len(message_frames(FIRST))
    data = message_frames(FIRST) + message_frames(message) + message_frames(NEXT)
    found, _ = read(data, [(at, at + head(message))])
    assert [m.payloads[1][0] for m in found] == ([1, 3] if over else [1, 2, 3])


# --- hostile ---


@pytest.mark.parametrize(
    "lengths", [(2**64,), (-1,), (2**63,), (2**64 - 1,), (2**200,), (0,) * 70_000], ids=len
)
def test_absurd_lengths_of_tensors(lengths: tuple[int, ...]) -> None:
    data = message_frames(MESSAGE)
    stream = stream_of(data, holes=[(0, head(MESSAGE))])
    assert rebuilt(stream, 0, len(data), lambda _: lengths) is None


@pytest.mark.parametrize("numel", [2**62, 2**63 - 1, -1, -(2**63)])
def test_absurd_tables(numel: int) -> None:
    metas = [TensorMeta(dtype="float64", sizes=(3,), strides=(1,), storage=0, storage_numel=numel)]
    message = Said(id=2, table=to_tensor_table(metas), tensors=(b"x" * 24,))
    assert lossy(message, (0, head(message))) is None


def test_a_table_inside_the_payload_is_not_the_last_one() -> None:
    inner = frame(table(1, 2))
    message = said(2, b"...." + inner + b"....", (5,))
    assert lossy(message, (0, head(message))) == descriptor_of(message, ControlLayout.V1_9, "basic")
    assert lossy(said(2, inner), (0, 3)) == descriptor_of(said(2, inner), ControlLayout.V1_9, "basic")


def test_many_tables_that_are_none_take_little_time() -> None:
    """Each of them has the right length before it, and hides the next one in a string."""
    data = b""
    unit = 8 + 2 + 2  # length, PROTO 2, SHORT_BINSTRING of what comes next
    for _ in range(20_000):
        data = (len(data) + 4).to_bytes(8, "little") + b"\x80\x02U\x08" + data
    assert len(data) == 20_000 * unit
    stream = stream_of(bytes(200) + data, holes=[(0, 150)], sizes=(60_000,))
    start = time.process_time()
    assert rebuilt(stream, 0, 200 + len(data)) is None
    assert time.process_time() - start < 6


@given(
    st.binary(max_size=60), st.lists(st.tuples(st.integers(0, 90), st.integers(1, 90)), max_size=2), st.data()
)
@settings(max_examples=examples(120), deadline=None)
def test_whatever_is_there_nothing_else_is_raised(
    noise: bytes, holes: list[tuple[int, int]], pick: st.DataObject
) -> None:
    data = bytearray(message_frames(MESSAGE))
    for byte in noise[:3]:
        data[pick.draw(st.integers(0, len(data) - 1))] = byte
    at = pick.draw(st.integers(0, len(data)))
    data[at:at] = noise[3:]
    ranges = [(a, min(a + n, len(data))) for a, n in holes]
    body = rebuilt(stream_of(bytes(data), holes=ranges), 0, len(data))
    assert body is None or len(body) + 8 <= len(data)


# --- whole conversations ---


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=2, max_size=5),
    st.lists(st.tuples(st.integers(0, 1200), st.integers(1, 400)), min_size=1, max_size=3),
    st.booleans(),
)
@settings(max_examples=examples(100), deadline=None)
def test_what_is_rebuilt_is_what_was_said(
    messages: list[list[int]], holes: list[tuple[int, int]], lane_too: bool
) -> None:
    """Payloads that were captured are right, and no tensor gets the bytes of another one."""
    network = Network()
    pipe = PipeTalk(network)
    begin = len(network.written(pipe.descriptor))
    truth = {}
    for number, lengths in enumerate(messages):
        tensors = tuple(bytes([1 + 10 * number + i]) * n for i, n in enumerate(lengths))
        message = Said(id=number, payload=b"p" * (7 * number), table=table(*lengths), tensors=tensors)
        truth[number] = pipe.send(message)
    lost = [Hole(pipe.descriptor, True, begin + at, begin + at + size) for at, size in holes]
    if lane_too:
        lost += [Hole(pipe.extra[0], True, 13 + at // 20, 13 + at // 20 + size // 20) for at, size in holes]
    player = Player(network)
    player.outcome.demux = Demux(read_table=storage_lengths)
    player.feed(segments(network, holes=lost, sizes=(60,)))
    outcome = player.finish()
    for found in outcome.messages:
        wanted = truth[int.from_bytes(found.payloads[1], "little")]
        for got, there in zip(found.payloads, wanted.all_payloads, strict=True):
            assert there.startswith(got)
        heard = outcome.heard(found).tensors
        for got, tensor, data in zip(heard, found.tensors, wanted.tensors, strict=True):
            assert tensor.descriptor.length == len(data)
            if isinstance(got, bytes):
                assert all(a in (0, b) for a, b in zip(got, data, strict=True))
