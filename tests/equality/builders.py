"""Tensors, values and records to compare, without any capture."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.elements import ReadExtent, Storage, Tensors
from rpcinspect.equality.rules import Rules
from rpcinspect.equality.tensors import compare_tensors
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.pickles.tree import Value
from rpcinspect.rpc.command import Command
from rpcinspect.rpc.command_codec import message_type_of, to_payload
from rpcinspect.rpc.decode import DecodedRpc, reencode
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.envelope import Envelope, wrap
from rpcinspect.rpc.message import RpcMessage
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.rpc.tensor import TensorMeta, read_tensor_table, to_tensor_table
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tensorpipe.control_types import TpTensorDescriptor
from rpcinspect.tensorpipe.records import Placement, TpTensor
from tests.equality.mirrors import mirrored, mirrored_rules
from tests.rpc.torch_tables import torch_table
from tests.session.records import CPU, pipe, tp_message

BITS = Rules()
STRICT = Rules(strict=True)


def in_memory(data: bytes, device: str | None = "cpu") -> Storage:
    """A storage whose bytes are here."""
    extent = Extent(len(data), ((0, 0, len(data)),) if data else ())
    return Storage(
        extent, lambda part: b"".join(data[o : o + n] for _, o, n in part.pieces), target_device=device
    )


def dense(dtype: str, data: bytes, sizes: tuple[int, ...] | None = None, **more: Any) -> Tensors:
    """One contiguous tensor; by default it is a row."""
    row = DTYPES[dtype]
    numel = len(data) // row.item_bytes * row.values_per_byte
    sizes = (numel,) if sizes is None else sizes
    strides = tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
    fields: dict[str, Any] = {"strides": strides, "storage": 0, "storage_numel": numel, **more}
    return Tensors((TensorMeta(dtype=dtype, sizes=sizes, **fields),), (in_memory(data),))


def floats(*values: float, dtype: str = "float32") -> Tensors:
    """A row of floats."""
    return dense(
        dtype, np.array(values, {"float32": "<f4", "float64": "<f8", "float16": "<f2"}[dtype]).tobytes()
    )


def from_torch(*tensors: Any) -> Tensors:
    """Tensors as torch would send them."""
    table, storages = torch_table(list(tensors))
    return Tensors(read_tensor_table(table), [in_memory(data) for data in storages])


def compare(a: Tensors, b: Tensors, rules: Rules = BITS, index: int = 0) -> list[Difference]:
    """Tensor `index` of both, both ways round."""
    found = compare_tensors(a, index, b, index, f"tensors[{index}]", rules)
    back = compare_tensors(b, index, a, index, f"tensors[{index}]", mirrored_rules(rules))
    assert [mirrored(difference) for difference in back] == found
    return found


def codes(differences: Sequence[Difference]) -> list[str]:
    return [difference.code for difference in differences]


def tree(value: object, protocol: int = 4) -> Value:
    """A Python value as its pickle says it."""
    return read_python_pickle(pickle.dumps(value, protocol)).root


def record(
    command: Command,
    *envelopes: Envelope,
    metas: Sequence[TensorMeta] = (),
    storages: Sequence[bytes] = (),
    missing: Sequence[int] | None = None,
) -> tuple[RpcRecord, ReadExtent]:
    """A message with the bytes of its storages."""
    kind = envelopes[0].message_type if envelopes else message_type_of(command)
    table = to_tensor_table(metas)
    message = RpcMessage(kind, 0, wrap(envelopes, to_payload(command)), table)
    return from_parts(message.to_payloads(), storages, missing)


def from_parts(
    payloads: Sequence[bytes], storages: Sequence[bytes] = (), missing: Sequence[int] | None = None
) -> tuple[RpcRecord, ReadExtent]:
    """A record of payloads; the reader knows its storages by their number."""
    tensors = []
    for number, data in enumerate(storages):
        descriptor = TpTensorDescriptor(length=len(data), source_device=CPU, target_device=CPU)
        extent = Extent(len(data), ((number, 0, len(data)),) if data else ())
        tensors.append(TpTensor(descriptor, Placement.CERTAIN, extent))
    tp = tp_message(pipe(), payloads, tensors=tensors, missing=missing)

    def read(extent: Extent) -> bytes:
        return b"".join(storages[number][at : at + length] for number, at, length in extent.pieces)

    return RecordDecoder().decode(tp), read


def changed(original: RpcRecord, rpc: DecodedRpc) -> RpcRecord:
    """A captured message as it would be with other fields, its tensors where they were."""
    tp = original.tp
    made = tp_message(tp.pipe, reencode(rpc), from_client=tp.from_client, tensors=tp.tensors)
    return RecordDecoder().decode(made)
