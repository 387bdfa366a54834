"""Live messages as records, so that they are compared and matched as captured ones are.

In: a message and its storages, as a peer hands them on. Out: an `RpcRecord` and a reader of its bytes. What
such a record says of its journey means nothing; its type, its contents and its tensors do.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rpcinspect.equality.elements import Read
from rpcinspect.replay.peers.pipe_end import CPU
from rpcinspect.rpc.message import Message
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.wire.ranges import Extent
from rpcinspect.wire.records import Pipe, Placement, TpMessage, TpTensor
from rpcinspect.wire.segment import Endpoint, Flow
from rpcinspect.wire.tensorpipe_types import Layout, TpDescriptor, TpPayload, TpTensorDescriptor


class Arrived(Struct, frozen=True):
    """A live message, decoded."""

    record: RpcRecord
    read: Read


class LiveRecords:
    """Decodes live messages; remembers byte patterns that repeat."""

    def __init__(self) -> None:
        self._decoder = RecordDecoder()

    def decode(self, message: Message, tensors: Sequence[bytes], time_ns: int) -> Arrived:
        """The record of a message; damage becomes its problems."""
        storages = tuple(tensors)
        carried = [
            TpTensor(
                TpTensorDescriptor(length=len(data), source_device=CPU, target_device=CPU),
                Placement.CERTAIN,
                Extent(len(data), ((number, 0, len(data)),) if data else ()),
            )
            for number, data in enumerate(storages)
        ]
        payloads = message.to_payloads()
        tp = TpMessage(
            pipe=_NO_PIPE,
            from_client=True,
            descriptor=TpDescriptor(
                b"", tuple([TpPayload(len(p)) for p in payloads]), tuple([t.descriptor for t in carried])
            ),
            layout=Layout.V1_9,
            descriptor_body=b"",
            payloads=payloads,
            payload_missing=None,
            tensors=carried,
            waiting=0,
            first_ns=time_ns,
            last_ns=time_ns,
            capture=-1,
            packet=-1,
            flow=_NO_PIPE.flow,
            offset=0,
            length=0,
            after_loss=False,
        )

        def read(extent: Extent) -> bytes:
            return b"".join([storages[number][at : at + length] for number, at, length in extent.pieces])

        return Arrived(self._decoder.decode(tp), read)


_NO_PIPE = Pipe(-1, Flow(Endpoint("", 0), Endpoint("", 0)))
