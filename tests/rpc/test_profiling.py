from __future__ import annotations

import pytest
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.pickles.jit import read_jit
from rpcinspect.pickles.jit_write import write_jit
from rpcinspect.rpc.profiling import (
    MAX_SHAPES,
    MAX_SHAPES_IN_ALL,
    LegacyEvent,
    ProfilerConfig,
    events_from_values,
    tagged,
)

ints = st.integers(-(1 << 63), (1 << 63) - 1)
events = st.builds(
    LegacyEvent,
    kind=ints,
    name=st.text(max_size=20),
    thread_id=ints,
    handle=st.floats(allow_nan=False),
    node_id=ints,
    cpu_memory=ints,
    cpu_ns=ints,
    cuda_recorded=st.booleans(),
    cuda_memory=ints,
    cuda_device=ints,
    cuda_us=ints,
    shapes=st.lists(st.lists(ints, max_size=3).map(tuple), max_size=3).map(tuple),
)

# the event "aten::mul" of a captured answer: push range, thread 1, handle 1.0, worker 1, no shapes
EVENT = (
    bytes.fromhex("80 02") + b"ctorch.jit._pickle\nrestore_type_tag\n" + bytes.fromhex("71 00 5d 28")
    + bytes.fromhex("4b 01  58 09 00 00 00") + b"aten::mul" + bytes.fromhex("71 01  4b 01")
    + bytes.fromhex("47 3f f0 00 00 00 00 00 00")  # BINFLOAT 1.0, big-endian
    + bytes.fromhex("4b 01  4b 00  8a 08 f3 88 4f ea 11 02 00 00  89")  # node, memory, ns, no cuda
    + bytes.fromhex("4b 00  4a ff ff ff ff  4a ff ff ff ff  68 00 5d 28 65")
    + bytes.fromhex("58 0f 00 00 00") + b"List[List[int]]" + bytes.fromhex("71 02 86 52 65")
    + bytes.fromhex("58 09 00 00 00") + b"List[Any]" + bytes.fromhex("71 03 86 52 2e")
)  # fmt: skip
MUL = LegacyEvent(
    kind=1,
    name="aten::mul",
    thread_id=1,
    handle=1.0,
    node_id=1,
    cpu_memory=0,
    cpu_ns=0x0211EA4F88F3,
    cuda_recorded=False,
    cuda_memory=0,
    cuda_device=-1,
    cuda_us=-1,
    shapes=(),
)


def test_literal_event() -> None:
    assert LegacyEvent.from_value(read_jit(EVENT)) == MUL
    assert write_jit(MUL.to_value()) == EVENT


def test_names_that_are_not_utf8_stay_bytes() -> None:
    raw = EVENT.replace(b"aten::mul", b"aten::m\xff\xfe")
    event = LegacyEvent.from_value(read_jit(raw))
    assert event.name == b"aten::m\xff\xfe"
    assert write_jit(event.to_value()) == raw


def test_config() -> None:
    config = ProfilerConfig(2, True, False)
    assert ProfilerConfig.from_value(config.to_value()) == config
    assert ProfilerConfig.from_value([2, True, False]) == config


@pytest.mark.parametrize(
    "value", [None, [], [1, True], [1, 1, True], [True, True, True], tagged([1], "List[Any]")], ids=str
)
def test_what_is_no_config(value: object) -> None:
    with pytest.raises(DecodeError):
        ProfilerConfig.from_value(value)


@pytest.mark.parametrize("position", range(12))
def test_every_item_of_an_event_is_checked(position: int) -> None:
    items = [1, "x", 1, 1.0, 1, 0, 0, False, 0, -1, -1, []]
    assert LegacyEvent.from_value(items).name == "x"
    items[position] = None
    with pytest.raises(DecodeError):
        LegacyEvent.from_value(items)


def test_shapes_that_are_named_again_and_again_are_bounded() -> None:
    shapes = [[1]] * MAX_SHAPES
    event = [1, "x", 1, 1.0, 1, 0, 0, False, 0, -1, -1, shapes]
    assert len(events_from_values([event] * 100_000)) == 100_000  # one list, read once
    with pytest.raises(LimitExceeded):
        events_from_values([list(event) for _ in range(MAX_SHAPES_IN_ALL // MAX_SHAPES + 1)])
    with pytest.raises(DecodeError):
        events_from_values([[*event[:-1], [[1]] * (MAX_SHAPES + 1)]])
    with pytest.raises(DecodeError):
        events_from_values([[*event[:-1], [[1] * 65]]])
