"""Every bound can be reached, and stops what it is there to stop."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from msgspec import structs

from rpcinspect.errors import LimitExceeded
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles.jit import read_jit
from rpcinspect.pickles.jit_write import write_jit
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.store.conversation import StoreConversation
from rpcinspect.store.operations import StoreGeneration
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.control_types import ControlLayout
from rpcinspect.tensorpipe.descriptor import DescriptorReader
from rpcinspect.tensorpipe.nop import NopReader
from rpcinspect.tensorpipe.records import Pipe
from rpcinspect.tensorpipe.shape_table import ShapeTable
from tests.tensorpipe.conversations import (
    Network,
    PipeTalk,
    Said,
    descriptor_of,
    message_frames,
    play,
    stream_of,
)

JIT = b"\x80\x02"


def jit(body: bytes) -> Callable[[Limits], object]:
    return lambda limits: read_jit(JIT + body, limits)


def python(value: object, protocol: int = 4) -> Callable[[Limits], object]:
    return lambda limits: read_python_pickle(pickle.dumps(value, protocol), limits)


DEEP: object = ()
for _ in range(20):
    DEEP = (DEEP, 1)

CASES: list[tuple[str, int, Callable[[Limits], object]]] = [
    ("payload_bytes", 600, lambda limits: ShapeTable(limits).get(_descriptor(600))),
    ("nop_items", 3, lambda limits: NopReader(b"\xba\x03\0\0\0", 0, limits).array()),
    ("pickle_opcodes", 4, jit(b"K\x01K\x02\x86.")),
    ("pickle_opcodes", 4, lambda limits: read_python_pickle(b"\x80\x02K\x01\x85.", limits)),
    ("pickle_stack", 2, jit(b"(((ttt.")),
    ("pickle_stack", 2, lambda limits: read_python_pickle(b"\x80\x02(((ttt.", limits)),
    ("pickle_memo", 3, jit(b"K\x01q\x00q\x01r\x02\0\0\0.")),
    ("pickle_memo", 3, python([["a"], ["b"], ["c"]])),
    ("pickle_string_bytes", 5, jit(b"X\x05\0\0\0abcde.")),
    ("pickle_string_bytes", 300, python("x" * 300)),
    ("pickle_string_bytes", 300, python(b"x" * 300)),
    ("pickle_depth", 21, lambda limits: write_jit(DEEP, limits=limits)),
]
"""(bound, the smallest value that lets it pass or a little more, what it bounds)."""


def _descriptor(total: int) -> bytes:
    return descriptor_of(Said(payloads=(b"x" * total,)), ControlLayout.V1_9, "basic")


@pytest.mark.parametrize(
    ("name", "bound", "decode"), CASES, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(CASES)]
)
def test_a_bound_stops_what_is_over_it(name: str, bound: int, decode: Callable[[Limits], object]) -> None:
    decode(DEFAULT_LIMITS)
    enough = next(n for n in range(bound + 10) if _passes(name, n, decode))
    assert bound - 4 <= enough <= bound + 4
    with pytest.raises(LimitExceeded) as caught:
        decode(Limits(**{name: enough - 1}))
    assert (caught.value.limit, caught.value.bound) == (name, enough - 1)
    assert caught.value.value > enough - 1


def _passes(name: str, bound: int, decode: Callable[[Limits], object]) -> bool:
    try:
        decode(Limits(**{name: bound}))
    except LimitExceeded:
        return False
    return True


def test_a_long_descriptor_is_not_read() -> None:
    flow = Flow(Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2))
    long = Said(id=1, payload=b"long", tensors=(b"x",) * 50)
    data = message_frames(long) + message_frames(Said(id=2))
    for bound, ids in ((100, [2]), (10_000, [1, 2])):
        limits = Limits(control_frame_bytes=bound)
        stream = stream_of(data)
        assert stream.origin is not None
        reader = DescriptorReader(Pipe(0, flow), True, stream, stream.origin, ShapeTable(limits), limits)
        assert [m.payloads[1][0] for m in reader.finish()] == ids
        assert bool(reader.problems) == (bound == 100)


def test_a_long_handshake_is_not_read() -> None:
    network = Network()
    PipeTalk(network)
    assert play(network).reasons == []
    assert "a frame of 101 bytes" in play(network, limits=Limits(control_frame_bytes=60)).reasons[0]


def test_a_long_item_of_the_store_is_not_kept() -> None:
    """SET of a value of 100 bytes."""
    value = (100).to_bytes(8, "little") + bytes(100)
    request = bytes.fromhex("00 cef7853c") + b"\x01" + (3).to_bytes(8, "little") + b"key" + value
    for bound, problems in ((50, 1), (1000, 0)):
        talk = StoreConversation(StoreGeneration.V2_2, Limits(store_item_bytes=bound))
        talk.feed(True, request, 0)
        assert len(talk.finish()) == problems


def test_every_bound_is_tested_here() -> None:
    tested = {name for name, _, _ in CASES} | {"control_frame_bytes", "store_item_bytes"}
    assert tested == {field.name for field in structs.fields(Limits)}


def test_limits_can_be_shared() -> None:
    assert Limits() == DEFAULT_LIMITS
    assert all(value > 0 for value in structs.astuple(DEFAULT_LIMITS))
    with pytest.raises(AttributeError):
        DEFAULT_LIMITS.nop_items = 1  # type: ignore[misc]
