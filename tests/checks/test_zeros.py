"""Gradients of zeros: found whatever their type and form, and never where a bit says otherwise."""

from __future__ import annotations

import struct

import pytest

from rpcinspect.checks.zeros import CHUNK
from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.message import MessageType, RpcMessage
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from rpcinspect.session.model import Finding
from rpcinspect.tcp.ranges import CaptureBytes, Extent
from rpcinspect.tensorpipe.control_types import TpTensorDescriptor
from rpcinspect.tensorpipe.records import Placement, TpTensor
from tests.checks.talks import findings, of_capture
from tests.replayer.talks import Workers
from tests.session.records import CPU, tp_message
from tests.truth import workload


def told(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == "zero-gradient"]


def test_the_gradient_of_an_unused_half() -> None:
    (truth,) = workload("faults/leaks").of("fault", code="zero-gradient")
    session, found = of_capture("faults/leaks")
    [finding] = told(found)
    assert finding.severity == "info"
    assert finding.workers == (truth["caller"], truth["callee"])
    (context,) = [c for c in session.contexts if c.context_id == truth["context_id"]]
    gradients = {index for edge in context.edges for index in edge.backward}
    assert set(finding.messages) < gradients


@pytest.mark.parametrize("name", ["faults/tidy", "basic_chain", "ctx_crowd", "bwd_boom"])
def test_runs_without_one(name: str) -> None:
    assert told(of_capture(name)[1]) == []


def is_zero(
    storages: list[bytes],
    metas: list[TensorMeta],
    grads: tuple[int, ...] = (0,),
    *,
    missing: tuple[tuple[int, int], ...] = (),
    pieces: int = 1,
) -> bool:
    """Whether a gradient message with these tensors is told of. Storages lie one behind the other."""
    data = b"".join(storages)
    workers = Workers(2)
    command = PropagateGradientsReq(AutogradMetadata(1, 1), grads, False)
    message = RpcMessage(
        int(MessageType.BACKWARD_AUTOGRAD_REQ), 1, to_payload(command), to_tensor_table(metas)
    )
    tensors, at = [], 0
    for storage in storages:
        size = len(storage)
        step = max(1, size // pieces)
        places = tuple((0, at + n, min(step, size - n)) for n in range(0, size, step))
        descriptor = TpTensorDescriptor(length=size, source_device=CPU, target_device=CPU)
        tensors.append(TpTensor(descriptor, Placement.CERTAIN, Extent(size, places, missing)))
        at += size
    workers.feed(tp_message(workers.pipes[1], message.to_payloads(), tensors=tensors))
    source = CaptureBytes(lambda capture, offset, length: data[offset : offset + length])
    return bool(told(findings(workers, source=source, until=10)))


def dense(count: int, dtype: str = "float32", offset: int = 0, stride: int = 1) -> TensorMeta:
    return TensorMeta(
        dtype=dtype, sizes=(count,), strides=(stride,), storage_offset=offset, storage=0, storage_numel=count
    )


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "data", "zero"),
    [
        ("float32", struct.pack("<3f", 0, 0, 0), True),
        ("float32", struct.pack("<3f", 0.0, -0.0, 0.0), True),
        ("float32", struct.pack("<3f", 0, 0, 1e-45), False),
        ("float32", b"\0\0\x80\0" * 3, False),
        ("float64", struct.pack("<3d", 0.0, -0.0, 0.0), True),
        ("float64", struct.pack("<3d", 0.0, 0.0, 5e-324), False),
        ("float64", b"\0\0\0\x80\0\0\0\0" * 3, False),
        ("float16", struct.pack("<3e", -0.0, 0.0, 0.0), True),
        ("bfloat16", b"\0\x80\0\0\0\0", True),
        ("complex64", struct.pack("<6f", 0.0, -0.0, 0.0, 0.0, -0.0, 0.0), True),
        ("complex64", struct.pack("<6f", 0, 0, 0, 0, 0, 1), False),
        ("float8_e4m3fnuz", b"\0\x80\0", False),  # its NaN
        ("float8_e5m2", bytes(3), True),
    ],
)
def test_bits(dtype: str, data: bytes, zero: bool, pieces: int) -> None:
    assert is_zero([data], [dense(3, dtype)], pieces=pieces) is zero


def test_a_long_one() -> None:
    count = 2 * CHUNK // 4 + 7
    assert is_zero([bytes(4 * count)], [dense(count)])
    assert not is_zero([bytes(4 * count - 1) + b"\x01"], [dense(count)])


def test_views_of_a_storage() -> None:
    data = struct.pack("<4f", 1, 0, 0, 1)
    assert is_zero([data], [dense(2, offset=1)])
    assert not is_zero([data], [dense(2)])
    assert not is_zero([data], [dense(3, offset=1)])
    assert is_zero([bytes(4)], [dense(1000, stride=0)])  # an expanded gradient
    assert not is_zero([struct.pack("<f", 1)], [dense(1000, stride=0)])


def test_one_of_several_is_enough() -> None:
    other = TensorMeta(dtype="float32", sizes=(1,), strides=(1,), storage=1, storage_numel=1)
    assert is_zero([struct.pack("<f", 1), bytes(4)], [dense(1), other], grads=(0, 1))
    assert not is_zero([struct.pack("<f", 1), bytes(4)], [dense(1), other], grads=(0,))


def test_sparse_gradients_are_told_by_their_values() -> None:
    def sparse(count: int, values: bytes) -> bool:
        index = TensorMeta(
            dtype="int64", sizes=(1, count), strides=(count, 1), storage=0, storage_numel=count, part_of=0
        )
        value = TensorMeta(
            dtype="float32", sizes=(count,), strides=(1,), storage=1, storage_numel=count, part_of=0
        )
        whole = TensorMeta(
            dtype="float32",
            sizes=(9,),
            strides=(),
            layout="sparse_coo",
            parts=(("indices", 1), ("values", 2)),
        )
        return is_zero([bytes(8 * count), values], [whole, index, value])

    assert sparse(2, bytes(8))
    assert not sparse(2, struct.pack("<2f", 0, 1))
    assert sparse(0, b"")


def test_nothing_is_said_of_what_is_not_there() -> None:
    assert not is_zero([bytes(12)], [dense(3)], missing=((4, 8),))
    assert not is_zero([b""], [dense(0)])
    assert not is_zero([bytes(4)], [dense(1)], grads=(5,))
