"""Messages for the tests of panes: made from opcodes and storages, as a live worker would send them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tensorpipe.control_types import TpDescriptor, TpDevice, TpPayload, TpTensorDescriptor
from rpcinspect.tensorpipe.records import TpMessage
from tests.replayer.planning.pickled import name, request

CPU = TpDevice("cpu", 0)


def call(
    *arguments: Any,
    function: tuple[str, str] = ("app", "f"),
    metas: Sequence[TensorMeta] = (),
    storages: Sequence[bytes] = (),
) -> tuple[RpcRecord, CaptureBytes]:
    """A request, and what reads its storages; arguments may hold `Raw`."""
    return message(MessageType.PYTHON_CALL, b"\0" + request(name(*function), *arguments), metas, storages)


def answer(pickle: bytes) -> tuple[RpcRecord, CaptureBytes]:
    """An answer that this pickle is the value of."""
    return message(MessageType.PYTHON_RET, pickle)


def message(
    kind: int, payload: bytes, metas: Sequence[TensorMeta] = (), storages: Sequence[bytes] = ()
) -> tuple[RpcRecord, CaptureBytes]:
    payloads = (kind.to_bytes(4, "little"), bytes(8), payload, to_tensor_table(metas))
    descriptor = TpDescriptor(
        metadata=b"",
        payloads=tuple(TpPayload(len(one), b"") for one in payloads),
        tensors=tuple(
            TpTensorDescriptor(length=len(data), source_device=CPU, target_device=CPU) for data in storages
        ),
    )
    record = RecordDecoder().decode(TpMessage.live(descriptor, payloads))
    return record, CaptureBytes(lambda number, at, length: storages[number][at : at + length])
