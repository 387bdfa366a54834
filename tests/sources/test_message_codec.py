"""What blocks of messages hold comes back, and nothing but an error comes of other bytes."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError
from rpcinspect.sources.message_codec import (
    BlockReader,
    StoredBlock,
    become,
    from_json,
    furthest,
    pack,
    pipe_state,
    to_json,
)
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.control import write_descriptor
from rpcinspect.tensorpipe.control_types import (
    ControlLayout,
    TpDescriptor,
    TpDevice,
    TpPayload,
    TpTensorDescriptor,
)
from rpcinspect.tensorpipe.records import Pipe, Placement, TpMessage, TpTensor, Visibility

SIZE = 1 << 40
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
PACKETS = st.integers(-1, 1 << 62)
TEXT = st.binary(max_size=8).map(lambda data: data.decode(errors="surrogateescape"))
FLOWS = st.builds(Flow, *[st.builds(Endpoint, TEXT, st.integers(0, 1 << 32))] * 2)
PIPES = st.builds(
    Pipe,
    number=st.integers(0, 5),
    flow=FLOWS,
    client_name=st.none() | TEXT,
    listener=st.none() | st.builds(Endpoint, TEXT, st.integers(0, 65535)),
    channels=st.lists(
        st.tuples(st.tuples(*[st.builds(TpDevice, TEXT, st.integers(-1, 9))] * 2), TEXT), max_size=2
    ).map(tuple),
    visible=st.sampled_from(Visibility),
    reason=st.none() | TEXT,
    first_ns=INT64,
    ended_ns=st.none() | INT64,
    invisible_channels=st.sets(TEXT, max_size=3),
    origins=st.tuples(*[st.none() | st.integers(0, (1 << 32) - 1)] * 2),
)


@st.composite
def extents(draw: st.DrawFn, length: int) -> Extent:
    """An extent of that length, in pieces, some of which were not captured."""
    cuts = sorted({0, length, *draw(st.lists(st.integers(0, length), max_size=3))})
    pieces, missing = [], []
    for start, stop in pairwise(cuts):
        if draw(st.booleans()):
            pieces.append((draw(st.integers(0, 2)), draw(st.integers(0, 1 << 39)), stop - start))
        else:
            missing.append((start, stop))
    return Extent(length, tuple(pieces), tuple(missing))


@st.composite
def messages(draw: st.DrawFn, pipes: list[Pipe]) -> TpMessage:
    payloads = draw(st.lists(st.binary(max_size=20), max_size=4).map(tuple))
    missing = draw(st.none() | st.tuples(*[st.integers(0, 1 << 33)] * len(payloads)))
    lengths = draw(st.lists(st.integers(0, 1 << 32), max_size=3))
    announced = tuple(
        TpTensorDescriptor(length=n, source_device=TpDevice("cpu", 0), target_device=None) for n in lengths
    )
    gone = missing or (0,) * len(payloads)
    parts = tuple(TpPayload(len(a) + b) for a, b in zip(payloads, gone, strict=True))
    descriptor = TpDescriptor(b"", parts, announced)
    tensors = []
    for one in announced:
        place = draw(st.sampled_from(Placement))
        extent = draw(extents(one.length)) if place is Placement.CERTAIN else None
        tensors.append(TpTensor(one, place, extent))
    return TpMessage(
        pipe=draw(st.sampled_from(pipes)),
        from_client=draw(st.booleans()),
        descriptor=descriptor,
        layout=ControlLayout.V1_9,
        descriptor_body=write_descriptor(descriptor, ControlLayout.V1_9),
        payloads=payloads,
        payload_missing=missing,
        tensors=tensors or (),
        first_ns=draw(INT64),
        last_ns=draw(INT64),
        capture=draw(st.integers(0, 2)),
        packet=draw(PACKETS),
        first_packet=draw(PACKETS),
        last_packet=draw(PACKETS),
        flow=draw(FLOWS),
        offset=draw(INT64),
        length=draw(st.integers(0, (1 << 64) - 1)),
        after_loss=draw(st.booleans()),
        payloads_ns=draw(st.none() | st.tuples(INT64, INT64)),
    )


def told(tp: TpMessage) -> dict[str, Any]:
    """All that a message says."""
    fields = {name: getattr(tp, name) for name in TpMessage.__struct_fields__}
    tensors = [(one.descriptor, one.placement, one.extent) for one in tp.tensors]
    return {**fields, "pipe": tp.pipe.number, "tensors": tensors}


@given(st.data())
def test_messages_come_back(data: st.DataObject) -> None:
    pipes = [Pipe(number, Flow(Endpoint("a", 1), Endpoint("b", 2))) for number in range(3)]
    some = data.draw(st.lists(messages(pipes), max_size=5))
    read, changes = BlockReader(dict(enumerate(pipes)), [SIZE] * 3).read(pack(some, [(1, b"x")]))
    assert [told(tp) for tp in read] == [told(tp) for tp in some]
    assert all(one.pipe is other.pipe for one, other in zip(read, some, strict=True))
    assert changes == [(1, b"x")]


@given(PIPES)
def test_pipes_come_back(pipe: Pipe) -> None:
    other = Pipe(9, Flow(Endpoint("", 0), Endpoint("", 0)))
    become(other, from_json(to_json(pipe), Pipe))
    assert pipe_state(other) == pipe_state(pipe)
    assert (other.number, other.invisible_channels) == (pipe.number, pipe.invisible_channels)


def one(length: int = 8, pieces: tuple[tuple[int, int, int], ...] = ((0, 100, 8),), **how: Any) -> TpMessage:
    announced = TpTensorDescriptor(length=length, source_device=TpDevice("cpu", 0), target_device=None)
    descriptor = TpDescriptor(b"", (TpPayload(1),), (announced,))
    body = write_descriptor(descriptor, ControlLayout.V1_9)
    extent = how.pop("extent", Extent(length, pieces))
    placed = TpTensor(announced, how.pop("placement", Placement.CERTAIN), extent)
    pipe = how.pop("pipe", Pipe(0, Flow(Endpoint("a", 1), Endpoint("b", 2))))
    told = {"payloads": (b"p",), "payload_missing": None, "tensors": [placed], "capture": 0, **how}
    return TpMessage(pipe, True, descriptor, ControlLayout.V1_9, body, **told)


def read(tp: TpMessage) -> list[TpMessage]:
    return BlockReader({0: tp.pipe}, [108]).read(pack([tp]))[0]


def test_equal_parts_are_one_object() -> None:
    first, second = BlockReader({0: one().pipe}, [108]).read(pack([one(), one()]))[0]
    assert first.descriptor is second.descriptor
    assert first.descriptor_body is second.descriptor_body
    assert first.flow is second.flow
    assert furthest([first]) == 108


@pytest.mark.parametrize(
    ("tp", "why"),
    [
        (one(pieces=((0, 101, 8),)), "outside of the captures"),
        (one(pieces=((1, 0, 8),)), "outside of the captures"),
        (one(pieces=((0, 0, 7),)), "more or fewer bytes"),
        (one(extent=Extent(9, ((0, 0, 9),))), "more or fewer bytes"),
        (one(extent=Extent(8, ((0, 0, 4),), ((4, 8), (2, 2)))), "out of order"),
        (one(extent=Extent(8, ((0, 0, 4),), ((6, 10),))), "more or fewer bytes"),
        (one(extent=None), "a certain place"),
        (one(placement=Placement.MISSING), "a certain place"),
        (one(capture=1), "a capture that is not there"),
        (one(payloads=(b"pp",)), "longer or shorter"),
        (one(payloads=(b"",)), "longer or shorter"),
        (one(payloads=(b"p",), payload_missing=(1,)), None),
        (one(payloads=(), payload_missing=(1,)), "longer or shorter"),
        (one(payloads=(b"pp",), payload_missing=(0,)), "longer or shorter"),
        (one(tensors=[one().tensors[0]] * 2), "other tensors"),
        (one(pipe=Pipe(1, Flow(Endpoint("a", 1), Endpoint("b", 2)))), "no block"),
    ],
)
def test_what_no_capture_has_is_refused(tp: TpMessage, why: str | None) -> None:
    reader = BlockReader({0: one().pipe}, [108])
    if why is None:
        assert len(reader.read(pack([tp]))[0]) == 1
        return
    with pytest.raises(DecodeError, match=why):
        reader.read(pack([tp]))


def test_any_other_bytes_are_refused() -> None:
    data = pack([one(), one()], [(0, b"{}")])
    chance = random.Random(1)
    for _ in range(3000):
        other = bytearray(data[: chance.choice((len(data), chance.randrange(len(data))))])
        for _ in range(chance.randrange(1, 4)):
            if other:
                other[chance.randrange(len(other))] = chance.randrange(256)
        try:
            BlockReader({0: one().pipe}, [108]).read(bytes(other))
        except DecodeError:
            continue


@pytest.mark.parametrize(
    "data", [b"", b"[", b"[" * 100_000, b"1" * 5000, b"{}", b"null", b'"\\ud800"', b"\xff"]
)
def test_json_that_is_no_pipe_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="no Pipe"):
        from_json(data, Pipe)


def test_numbers_of_shapes_and_flows_are_held_to_their_tables() -> None:
    block = msgspec.msgpack.decode(pack([one()]), type=StoredBlock)
    for bodies, flows in (([], block.flows), (block.bodies, [])):
        data = msgspec.msgpack.encode(StoredBlock(bodies, flows, [], block.messages))
        with pytest.raises(DecodeError, match="no block"):
            BlockReader({0: one().pipe}, [108]).read(data)
