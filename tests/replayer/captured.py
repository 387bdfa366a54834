"""Messages of a captured worker, ready to be sent again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd, peel
from rpcinspect.rpc.message import Message, MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.run import open_run


@dataclass(frozen=True)
class Captured:
    """A message with the bytes of its tensors."""

    record: RpcRecord
    tensors: tuple[bytes, ...]

    @property
    def message(self) -> Message:
        return self.record.rpc.message

    @property
    def from_client(self) -> bool:
        """Of its pipe: a request."""
        return self.record.tp.from_client

    @property
    def client(self) -> str | None:
        return self.record.tp.pipe.client_name


@contextmanager
def captured(path: str) -> Iterator[list[Captured]]:
    """All messages of a capture but the agents' own."""
    with open_run(path) as opened:
        found = []
        control = set()
        for record in opened.messages:
            key = (record.tp.pipe.number, record.rpc.message.id)
            if record.facts.control:
                control.add(key)
            if key in control:
                continue
            tensors = []
            for tensor in record.tp.tensors:
                assert tensor.extent is not None
                tensors.append(opened.read(tensor.extent))
            found.append(Captured(record, tuple(tensors)))
        yield found


def autograd_message_id(message: Message) -> int:
    """Which of its worker's recorded calls a wrapped message is."""
    envelope = peel(message.type, message.payload)[0][0]
    assert isinstance(envelope, RpcWithAutograd)
    return envelope.autograd_metadata.autograd_message_id


def remapped(request: Captured, live_ids: dict[int, int]) -> Message:
    """A captured backward request with the id that the live worker gave its answer."""
    command = request.record.rpc.command
    assert isinstance(command, PropagateGradientsReq)
    metadata = command.autograd_metadata
    live = AutogradMetadata(metadata.autograd_context_id, live_ids[metadata.autograd_message_id])
    payload = to_payload(PropagateGradientsReq(live, command.grads, command.retain_graph))
    return Message(int(MessageType.BACKWARD_AUTOGRAD_REQ), 0, payload, request.message.tensor_table)
