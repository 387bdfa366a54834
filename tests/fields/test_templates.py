"""One text for all messages of a pattern."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.fields.templates import MARKS, template
from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.message import MessageType, RpcMessage
from rpcinspect.rpc.patterns import Pattern
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from tests.session.records import gradient, pipe, tp_message, tp_tensor

numbers = st.integers(-(1 << 63), (1 << 63) - 1)


def gradients(*metadata: tuple[int, int]) -> list[RpcRecord]:
    """Messages of one pattern, which the first has taught."""
    decoder, descriptor = RecordDecoder(), None
    records = []
    for ids in metadata:
        command = PropagateGradientsReq(AutogradMetadata(*ids), (0,), False)
        message = RpcMessage(MessageType.BACKWARD_AUTOGRAD_REQ, 1, to_payload(command), gradient(1))
        tp = tp_message(pipe(), message.to_payloads(), tensors=[tp_tensor(4)])
        tp.descriptor = descriptor = descriptor or tp.descriptor
        records.append(decoder.decode(tp))
    return records


def known() -> tuple[RpcRecord, Pattern]:
    _, record = gradients((1 << 60, 1 << 61), (1 << 62, 3 << 60))
    assert record.pattern is not None
    return record, record.pattern


def context_of(record: RpcRecord) -> int:
    command = record.rpc.command
    assert isinstance(command, PropagateGradientsReq)
    return command.autograd_metadata.autograd_context_id


def edge_of(record: RpcRecord) -> int:
    command = record.rpc.command
    assert isinstance(command, PropagateGradientsReq)
    return command.autograd_metadata.autograd_message_id


@given(numbers, numbers, st.text(), st.text(), st.text())
def test_any_ids_fit_a_template(context: int, edge: int, first: str, second: str, third: str) -> None:
    record, pattern = known()

    def tell(one: RpcRecord) -> str:
        return f"{first}<{context_of(one)}>{second}<{edge_of(one)}>{third}"

    text = template(record, pattern, tell, str, "%d")
    assert text % (context, edge) == f"{first}<{context}>{second}<{edge}>{third}"


def test_what_does_not_tell_each_id_once_has_no_template() -> None:
    record, pattern = known()
    for tell in (
        lambda one: "",
        lambda one: f"{context_of(one)}",
        lambda one: f"{context_of(one)} {edge_of(one)} {edge_of(one)}",
        lambda one: f"{edge_of(one)} {context_of(one)}",
        lambda one: f"{context_of(one)} {edge_of(one)} {MARKS[0]}",
        lambda one: f"{context_of(one)} {edge_of(one)} {edge_of(one) % 10}",
    ):
        assert template(record, pattern, tell, str, "%d") == ""
