"""Messages of a captured worker, ready to be sent again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import rpcinspect
from rpcinspect.rpc.message import Message
from rpcinspect.rpc.record import RpcRecord


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
    with rpcinspect.open(path) as opened:
        found = []
        control = set()
        for record in opened.messages():
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
