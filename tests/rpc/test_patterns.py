"""Messages that a pattern fits are what the general reading gives, and no other message fits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    Command,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonCall,
    RRefUserDelete,
)
from rpcinspect.rpc.command_codec import message_type_of, to_payload
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd, wrap
from rpcinspect.rpc.message import MessageType, RpcMessage
from rpcinspect.rpc.patterns import MAX_LAYOUTS, MAX_PATTERNS, Patterns
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.rpc.types import ForkId, RRefId
from rpcinspect.tensorpipe.control_types import TpDescriptor
from rpcinspect.tensorpipe.records import TpMessage
from tests.session.records import gradient, pipe, tp_message, tp_tensor
from tests.thorough import examples

PIPE = pipe()
CALL = PythonCall(b"\x80\x04N.", False)

ids = st.integers(0, 300) | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-70000, 1 << 33)
commands = (
    st.builds(
        PropagateGradientsReq,
        st.builds(AutogradMetadata, ids, ids),
        st.lists(st.integers(0, 3), max_size=2).map(tuple),
        st.booleans(),
    )
    | st.builds(CleanupAutogradContextReq, ids)
    | st.builds(PropagateGradientsResp)
    | st.just(CALL)
)
envelopes = st.none() | st.builds(
    RpcWithAutograd,
    message_type=st.just(int(MessageType.FORWARD_AUTOGRAD_REQ)),
    autograd_metadata=st.builds(AutogradMetadata, ids, ids),
    from_worker_id=st.integers(0, 3),
    device_map=st.just({}),
    wrapped_message_type=st.just(int(MessageType.PYTHON_CALL)),
)


class Shapes:
    """Messages whose descriptors are one object where they are equal, as those of the wire stage are."""

    def __init__(self) -> None:
        self._known: dict[TpDescriptor, TpDescriptor] = {}

    def message(self, payload: bytes, kind: int, number: int = 1) -> TpMessage:
        payloads = RpcMessage(kind, number, payload, gradient(4)).to_payloads()
        tp = tp_message(PIPE, payloads, tensors=[tp_tensor(4) for _ in range(4)])
        tp.descriptor = self._known.setdefault(tp.descriptor, tp.descriptor)
        return tp

    def of(self, command: Command, envelope: RpcWithAutograd | None = None, number: int = 1) -> TpMessage:
        if envelope is None:
            return self.message(to_payload(command), message_type_of(command), number)
        return self.message(wrap([envelope], to_payload(CALL)), envelope.message_type, number)


def told(record: RpcRecord) -> object:
    return record.rpc, record.facts.function, record.problems


def alone(tp: TpMessage) -> object:
    """What a decoder says that has seen nothing else."""
    return told(RecordDecoder().decode(tp))


@given(st.lists(st.tuples(commands, envelopes), min_size=2, max_size=8))
@settings(max_examples=examples(200), deadline=None)
def test_it_equals_the_general_reading(said: list[tuple[Command, RpcWithAutograd | None]]) -> None:
    decoder, shapes = RecordDecoder(), Shapes()
    for number, (command, envelope) in enumerate(said * 2):
        tp = shapes.of(command, envelope, number)
        assert told(decoder.decode(tp)) == alone(tp)


def test_other_ids_of_the_same_width_fit() -> None:
    decoder, shapes = RecordDecoder(), Shapes()
    for number in range(300, 310):
        tp = shapes.of(PropagateGradientsReq(AutogradMetadata(number, 1 << 48 | number), (0,), False))
        record = decoder.decode(tp)
        assert record.ids == (() if number == 300 else (number, 1 << 48 | number))
        assert told(record) == alone(tp)


@given(st.integers(0, 200), st.integers(0, 255))
@settings(max_examples=examples(300), deadline=None)
def test_damage_is_told_as_the_general_reading_tells_it(at: int, value: int) -> None:
    decoder, shapes = RecordDecoder(), Shapes()
    tp = shapes.of(PropagateGradientsReq(AutogradMetadata(5, 1 << 48), (0,), False))
    payload = tp.payloads[2]
    decoder.decode(tp)
    at %= len(payload)
    damaged = payload[:at] + bytes([value]) + payload[at + 1 :]
    again = shapes.message(damaged, MessageType.BACKWARD_AUTOGRAD_REQ)
    assert told(decoder.decode(again)) == alone(again)


def test_what_tells_of_the_session_is_read_each_time() -> None:
    decoder, shapes = RecordDecoder(), Shapes()
    delete = RRefUserDelete(RRefId(0, 1), ForkId(0, 2))
    assert [decoder.decode(shapes.of(delete)).pattern for _ in range(3)] == [None, None, None]


def test_a_message_that_lost_bytes_has_no_pattern() -> None:
    decoder, shapes = RecordDecoder(), Shapes()
    whole = shapes.of(CALL)
    decoder.decode(whole)
    payloads = [*whole.payloads[:2], whole.payloads[2][:-1], whole.payloads[3]]
    lost = tp_message(PIPE, payloads, missing=(0, 0, 1, 0), tensors=[tp_tensor(4) for _ in range(4)])
    assert lost.descriptor == whole.descriptor
    lost.descriptor = whole.descriptor
    record = decoder.decode(lost)
    assert record.pattern is None
    assert told(record) == alone(lost)


def test_a_record_that_is_changed_has_no_pattern() -> None:
    decoder, shapes = RecordDecoder(), Shapes()
    decoder.decode(shapes.of(CALL))
    record = decoder.decode(shapes.of(CALL))
    assert record.pattern is not None
    assert record.like is record.pattern.rpc
    record.rpc = alone(shapes.of(PropagateGradientsResp()))[0]  # type: ignore[index]
    assert record.pattern is None
    assert isinstance(record.like.command, PropagateGradientsResp)


def test_the_memory_is_bounded() -> None:
    patterns, decoder = Patterns(), RecordDecoder()
    for number in range(MAX_PATTERNS + MAX_LAYOUTS + 10):
        tp = Shapes().message(b"\x00" + b"%d" % number, MessageType.PYTHON_CALL)
        record = decoder.decode(tp)
        patterns.learn(tp, record.rpc, record.facts)
        assert len(patterns._layouts) <= MAX_LAYOUTS
        assert sum(len(layout.patterns) for layout in patterns._layouts.values()) <= MAX_PATTERNS
