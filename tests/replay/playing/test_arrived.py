"""Live messages as records: those of captures must come out as the decoder of captures reads them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.equality.ids import IdMap
from rpcinspect.equality.messages import compare_messages, same_payload
from rpcinspect.equality.rules import Rules
from rpcinspect.replay.playing.arrived import LiveRecords
from rpcinspect.rpc.command import PythonCall
from rpcinspect.rpc.message import NO_TENSORS, Message, MessageType
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from rpcinspect.wire.ranges import Extent
from tests.replay.captured import captured
from tests.replay.talks import udf
from tests.truth import CAPTURES

STRICT = Rules(strict=True)


@pytest.mark.parametrize("name", ["basic_chain", "profiled_legacy", "rref_relay", "ps_race"])
def test_a_captured_message_that_arrives_is_the_captured_one(name: str) -> None:
    path = min(CAPTURES.glob(f"{name}.pcap*"))
    live = LiveRecords()
    with captured(str(path)) as messages:
        assert messages
        for one in messages:
            extents = [id(tensor.extent) for tensor in one.record.tp.tensors]
            storages = dict(zip(extents, one.tensors, strict=True))

            def read(extent: Extent, storages: dict[int, bytes] = storages) -> bytes:
                return storages[id(extent)]

            came = live.decode(one.message, one.tensors, 0)
            assert same_payload(one.record, came.record)
            assert type(came.record.rpc.command) is type(one.record.rpc.command)
            assert came.record.rpc.envelopes == one.record.rpc.envelopes
            assert came.record.problems == ()
            assert [came.read(t.extent) for t in came.record.tp.tensors if t.extent] == list(one.tensors)
            assert compare_messages(one.record, came.record, read, came.read, STRICT, IdMap()) == []


def test_parts_of_a_storage_can_be_read() -> None:
    table = to_tensor_table(
        [
            TensorMeta(dtype="uint8", sizes=(n,), strides=(1,), storage=i, storage_numel=n)
            for i, n in ((0, 3), (1, 5))
        ]
    )
    message = Message(int(MessageType.PYTHON_CALL), 7, b"\0" + udf("app.f"), table)
    came = LiveRecords().decode(message, [b"abc", b"defgh"], 99)
    assert isinstance(came.record.rpc.command, PythonCall)
    assert came.record.tp.first_ns == came.record.tp.last_ns == 99
    assert came.read(Extent(4, ((1, 1, 2), (0, 0, 2)))) == b"efab"
    assert came.read(Extent(0, ())) == b""


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([int(kind) for kind in MessageType] + [0, 9999]),
    st.one_of(st.binary(max_size=60), st.just(b"\0" + udf("app.f"))),
    st.one_of(st.binary(max_size=60), st.just(NO_TENSORS)),
    st.lists(st.binary(max_size=8), max_size=2),
)
def test_damage_becomes_problems(kind: int, payload: bytes, table: bytes, tensors: list[bytes]) -> None:
    """Whatever comes can be decoded, and compared with itself and with what it is not."""
    live = LiveRecords()
    came = live.decode(Message(kind, 1, payload, table), tensors, 0)
    again = live.decode(Message(kind, 2, payload, table), tensors, 0)
    good = live.decode(Message(int(MessageType.PYTHON_CALL), 1, b"\0" + udf("app.f"), NO_TENSORS), [], 0)
    for problem in came.record.problems:
        assert problem.reason
    compare_messages(came.record, again.record, came.read, again.read, STRICT)
    compare_messages(good.record, came.record, good.read, came.read, STRICT)
    compare_messages(came.record, good.record, came.read, good.read, STRICT)
