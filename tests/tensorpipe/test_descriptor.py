"""Messages from one direction of a descriptor connection."""

from __future__ import annotations

import pytest

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.control import DESCRIPTOR_SIGNATURE, frame
from rpcinspect.tensorpipe.control_types import ControlLayout
from rpcinspect.tensorpipe.descriptor import DescriptorReader
from rpcinspect.tensorpipe.records import Pipe, TpMessage
from rpcinspect.tensorpipe.shape_table import CACHED_DESCRIPTORS, ShapeTable
from tests.tensorpipe.conversations import Said, descriptor_of, message_frames, stream_of

FLOW = Flow(Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2))
LAYOUTS = [ControlLayout.V1_8, ControlLayout.V1_9]


def read(
    data: bytes,
    *,
    holes: list[tuple[int, int]] | None = None,
    lost: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    sizes: tuple[int, ...] = (40,),
) -> tuple[list[TpMessage], DescriptorReader]:
    stream = stream_of(data, holes=holes or (), sizes=sizes)
    assert stream.origin is not None
    reader = DescriptorReader(Pipe(0, FLOW), True, stream, stream.origin, ShapeTable(limits), limits, lost)
    return list(reader.finish()), reader


def reasons(reader: DescriptorReader) -> list[str]:
    return [problem.reason for problem in reader.problems]


def ids(messages: list[TpMessage]) -> list[int]:
    return [int.from_bytes(message.payloads[1], "little") for message in messages]


FIRST, SECOND, THIRD = Said(id=1, payload=b"one" * 20), Said(id=2, payload=b""), Said(id=3, table=b"t" * 50)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_messages_in_order(layout: ControlLayout) -> None:
    messages, reader = read(b"".join(message_frames(said, layout) for said in (FIRST, SECOND, THIRD)))
    assert [m.payloads for m in messages] == [s.all_payloads for s in (FIRST, SECOND, THIRD)]
    assert {m.layout for m in messages} == {layout}
    assert [m.offset for m in messages] == [0, messages[0].length, messages[0].length + messages[1].length]
    assert not any(m.after_loss or m.payload_missing for m in messages)
    assert reader.problems == []
    assert reader.frame_bytes == sum(m.length for m in messages)


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_any_number_of_payloads(count: int) -> None:
    said = Said(payloads=tuple(bytes([n]) * n for n in range(count)))
    messages, reader = read(message_frames(said) + message_frames(FIRST))
    assert [m.payloads for m in messages] == [said.all_payloads, FIRST.all_payloads]
    assert reader.problems == []


def test_equal_descriptors_are_one_object() -> None:
    messages, _ = read(message_frames(FIRST) + message_frames(FIRST))
    assert messages[0].descriptor is messages[1].descriptor
    assert messages[0].descriptor_body is messages[1].descriptor_body


def test_the_table_of_shapes_is_bounded() -> None:
    table = ShapeTable(DEFAULT_LIMITS)
    for number in range(CACHED_DESCRIPTORS + 5):
        table.get(
            descriptor_of(Said(payload=b"", payloads=(b"", bytes(number % 300))), ControlLayout.V1_9, "basic")
        )
    for number in range(3000, 3000 + CACHED_DESCRIPTORS):
        body = descriptor_of(Said(payloads=(bytes(number),)), ControlLayout.V1_9, "basic")
        assert table.get(body).lengths == (number,)
    assert len(table.known) <= CACHED_DESCRIPTORS


@pytest.mark.parametrize("size", range(len(message_frames(FIRST))))
def test_cut_at_every_byte(size: int) -> None:
    whole = message_frames(FIRST)
    head = len(frame(descriptor_of(FIRST, ControlLayout.V1_9, "basic")))
    messages, reader = read(message_frames(SECOND) + whole[:size])
    assert messages[0].payloads == SECOND.all_payloads
    type_and_id = head + 12 + 16
    assert 0 <= reader.frame_bytes <= len(message_frames(SECOND)) + size
    assert len(messages) == 1 + (size >= head)
    assert reader.complete == (size == 0 or size >= head)  # whether all lengths are known
    if size >= head:  # lengths are known, so the message counts although it may not be named
        cut = messages[1]
        assert cut.payload_missing is not None
        assert cut.identified == (size >= type_and_id)
        assert [len(p) + n for p, n in zip(cut.payloads, cut.payload_missing, strict=True)] == [
            len(p) for p in FIRST.all_payloads
        ]
    if size >= type_and_id:
        assert ids(messages[1:]) == [1]
        assert reader.problems == []
    else:
        assert len(reader.problems) == (size > 0)
        assert all("inside a message" in reason for reason in reasons(reader))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_hole_at_every_place(layout: ControlLayout) -> None:
    parts = [message_frames(said, layout) for said in (FIRST, SECOND, THIRD)]
    data = b"".join(parts)
    for at in range(len(parts[0])):
        found, reader = read(data, holes=[(at, at + 3)])
        messages = [m for m in found if m.identified]
        assert ids(messages)[-2 if at + 3 <= len(parts[0]) else -1 :] in ([2, 3], [3])
        for message in messages:
            if message.payload_missing is None:
                said = {1: FIRST, 2: SECOND, 3: THIRD}[ids([message])[0]]
                assert message.payloads == said.all_payloads
        lossy = [m for m in messages if m.payload_missing is not None]
        whole = [m for m in messages if m.payload_missing is None]
        assert len(lossy) + len(whole) == 3 or reader.problems
        assert len(found) == 3 or any(m.after_loss for m in messages)
        assert reader.frame_bytes <= len(data) - 3


def test_behind_lost_messages_the_first_says_so() -> None:
    parts = [message_frames(said) for said in (FIRST, SECOND, THIRD)]
    messages, reader = read(b"".join(parts), holes=[(3, len(parts[0]) + 5)])
    assert ids(messages) == [3]
    assert messages[0].after_loss
    assert reasons(reader) == ["a descriptor was not captured whole"]


def test_where_only_the_length_of_a_payload_was_lost_the_message_is_whole() -> None:
    head = len(frame(descriptor_of(FIRST, ControlLayout.V1_9, "basic")))
    messages, _ = read(message_frames(FIRST), holes=[(head + 2, head + 6)])
    assert messages[0].payload_missing is None
    assert messages[0].payloads == FIRST.all_payloads


@pytest.mark.parametrize("start", range(0, 60, 3))
def test_a_start_anywhere(start: int) -> None:
    data = message_frames(FIRST) + message_frames(SECOND) + message_frames(THIRD)
    messages, reader = read(data[start + 1 :], lost=True)
    assert ids(messages) == [2, 3]
    assert messages[0].after_loss
    assert reader.problems == []  # the capture started late, that is all


@pytest.mark.parametrize(
    "fake",
    [
        DESCRIPTOR_SIGNATURE,
        (40).to_bytes(8, "little") + DESCRIPTOR_SIGNATURE + bytes(40),
        (1 << 19).to_bytes(8, "little") + DESCRIPTOR_SIGNATURE,
        (1 << 40).to_bytes(8, "little") + DESCRIPTOR_SIGNATURE,
        frame(descriptor_of(SECOND, ControlLayout.V1_9, "basic")) + b"and no payloads of that kind",
        frame(descriptor_of(SECOND, ControlLayout.V1_8, "basic")) + bytes(100),
    ],
)
def test_a_false_signature_in_a_payload(fake: bytes) -> None:
    liar = Said(id=9, payload=b"...." + fake + b"....")
    data = message_frames(liar) + message_frames(THIRD)
    messages, _ = read(data)
    assert [m.payloads for m in messages] == [liar.all_payloads, THIRD.all_payloads]
    messages, _ = read(data, holes=[(2, 6)])  # now the payload is searched
    assert ids(messages) == [3]


def test_a_whole_message_in_a_payload_is_found_only_behind_a_loss() -> None:
    """Nothing tells it from a real one; it is marked as coming after a loss."""
    liar = Said(id=9, payload=message_frames(SECOND))
    messages, _ = read(message_frames(liar) + message_frames(THIRD))
    assert ids(messages) == [9, 3]
    messages, _ = read(message_frames(liar) + message_frames(THIRD), holes=[(2, 6)])
    assert ids(messages) == [2, 3]
    assert messages[0].after_loss


@pytest.mark.parametrize("length", [2**26 + 1, 2**31, 2**60, 2**64 - 1])
def test_an_absurd_descriptor(length: int) -> None:
    data = length.to_bytes(8, "little") + b"garbage" + message_frames(FIRST)
    messages, reader = read(data)
    assert ids(messages) == [1]
    assert f"{length:,}" in reasons(reader)[0]


@pytest.mark.parametrize("length", [2**31, 2**60, 2**64 - 1])
def test_an_absurd_payload(length: int) -> None:
    body = descriptor_of(Said(payload=b"x" * 200), ControlLayout.V1_9, "basic")
    changed = body.replace(b"\xb9\x02\x80\xc8", b"\xb9\x02\x83" + length.to_bytes(8, "little"))
    assert changed != body
    messages, reader = read(frame(changed) + message_frames(FIRST))
    assert ids(messages) == [1]
    assert any("payload_bytes" in reason for reason in reasons(reader))


@pytest.mark.parametrize("index", range(4))
def test_a_payload_frame_of_another_length(index: int) -> None:
    frames = [frame(descriptor_of(FIRST, ControlLayout.V1_9, "basic")), *map(frame, FIRST.all_payloads)]
    wrong = bytearray(frames[index + 1])
    wrong[0] ^= 1
    frames[index + 1] = bytes(wrong)
    messages, reader = read(b"".join(frames) + message_frames(THIRD))
    assert ids(messages) == [3]
    assert messages[0].after_loss
    assert len(reader.problems) == 1


def test_nothing_that_can_be_found_is_told_once() -> None:
    messages, reader = read(b"\xff" * 500)
    assert messages == []
    assert len(reader.problems) == 2  # why it was lost, and how much
    assert "500 bytes" in reasons(reader)[1]


def test_shapes_raise_only_decode_errors() -> None:
    table = ShapeTable(DEFAULT_LIMITS)
    for body in (b"", b"\xb9", b"\xff" * 40, DESCRIPTOR_SIGNATURE):
        with pytest.raises(DecodeError):
            table.get(body)
    body = descriptor_of(Said(payload=b"x" * 200), ControlLayout.V1_9, "basic")
    with pytest.raises(LimitExceeded):
        ShapeTable(Limits(payload_bytes=10)).get(body)


def test_a_length_that_never_comes_hides_nothing_behind_it() -> None:
    """Of a descriptor's frame, of a payload in the descriptor, of a payload's frame."""
    first, second = message_frames(FIRST), message_frames(SECOND)
    longer = descriptor_of(
        Said(payloads=(b"x" * 4, b"x" * 8, b"x" * 5000, b"x")), ControlLayout.V1_9, "basic"
    )
    for damaged in (
        (1 << 20).to_bytes(8, "little") + first[8:],
        frame(longer) + first[8 + int.from_bytes(first[:8], "little") :],
    ):
        messages, reader = read(message_frames(THIRD) + damaged + second + message_frames(THIRD))
        assert ids(messages) == [3, 2, 3]
        assert len(reader.problems) == 1
        assert reader.problems[0].location.offset == len(message_frames(THIRD))
    messages, reader = read(message_frames(THIRD) + (1 << 20).to_bytes(8, "little") + first[8:])
    assert ids(messages) == [3]
    assert reasons(reader) == ["the connection was closed inside a message"]
