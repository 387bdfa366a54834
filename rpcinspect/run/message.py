"""One message and its tensors, as a program asks for them: thin views over a record and the session.

In: a run and the index of a message. Out: who sent it to whom, when, and its tensors with their bytes. A view
holds nothing of its own; making one costs no reading.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rpcinspect.equality.elements import Tensors
from rpcinspect.equality.elements import tensors_of as located_tensors
from rpcinspect.errors import DecodeError
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import element_bytes
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import first_values, logical_bytes
from rpcinspect.run.elements import Bins, Statistics, bins_of, elements_of, statistics_of
from rpcinspect.run.tensors import (
    LastRead,
    TensorPlace,
    affordable,
    bytes_of,
    hash_of,
    place_of,
    whole_storage,
)
from rpcinspect.run.torch_tensors import torch_tensor
from rpcinspect.tensorpipe.records import Placement

if TYPE_CHECKING:
    from rpcinspect.run.exchanges import Exchange
    from rpcinspect.run.run import RunModel
    from rpcinspect.run.torch_tensors import TorchTensor


class Tensor:
    """A tensor of a message. Sizes and offsets in elements, lengths in bytes."""

    def __init__(self, record: RpcRecord, number: int, read: LastRead | None) -> None:
        """`read`: reads the bytes; without it `sha256` is None, and methods that need bytes raise
        `DecodeError`."""
        self._record = record
        self._read = read
        self.number = number
        """Its place in the tensor table of the message, from 0."""
        self.meta: TensorMeta = record.like.tensors[number]
        """All that the tensor table says of it."""

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        return f"Tensor({self.dtype}[{sizes}], {self.device}, {self.placement.value})"

    @property
    def dtype(self) -> str:
        """torch's name of the element type, such as `float32`."""
        return self.meta.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.meta.sizes

    @property
    def device(self) -> str:
        """The sender's device."""
        return self.meta.device

    @property
    def target_device(self) -> str | None:
        """Returns the receiver's device; None where the message does not name one."""
        return self.place.target_device

    @property
    def requires_grad(self) -> bool:
        return self.meta.requires_grad

    @cached_property
    def place(self) -> TensorPlace:
        """Returns where the storage lies, and what of it was captured."""
        return place_of(self._record, self.meta)

    @property
    def placement(self) -> Placement:
        """Returns how certain it is that the bytes are this tensor's."""
        return self.place.placement

    @property
    def missing_bytes(self) -> int:
        """Bytes of the storage that were not captured."""
        return self.place.missing_bytes

    @property
    def is_missing(self) -> bool:
        """Whether bytes of the storage were not captured."""
        return self.missing_bytes > 0 or self.placement is Placement.MISSING

    @property
    def parameter(self) -> bool:
        """Whether the tensor is an nn.Parameter."""
        return self.number in self._record.facts.parameters

    @property
    def part(self) -> str | None:
        """Returns which part of another tensor this one is, such as `indices`; None if it is none."""
        metas = self._record.like.tensors
        return next((name for meta in metas for name, part in meta.parts if part == self.number), None)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, of a sparse tensor those of its parts."""
        return element_bytes(self._record.like.tensors, self.meta)

    @property
    def complete(self) -> bool:
        """Whether all bytes of the tensor are there; of a sparse one those of its parts."""
        metas = [self._record.rpc.tensors[part] for _, part in self.meta.parts]
        if self.meta.storage is not None:
            metas.append(self.meta)
        return all(self._captured(meta) is not None for meta in metas)

    @property
    def affordable(self) -> bool:
        """Whether all bytes of the tensor are there, and its elements are no more than a small capture may
        ask for: see `CaptureBytes.affords`.
        """
        return self._read is not None and affordable(self._record, self.meta, self._read)

    @cached_property
    def sha256(self) -> str | None:
        """Hash over the elements in row-major order, as `decode --format jsonl` has it; None where bytes are
        missing or uncertain, and of sparse tensors.
        """
        return None if self._read is None else hash_of(self._record, self.meta, self._read)

    def tobytes(self) -> bytes:
        """The elements in row-major order, little-endian, conj and neg resolved; of quantized ones their
        integers. Raises `DecodeError` where not all of them are there.
        """
        return logical_bytes(self.meta, self._storage(self.meta))

    def numpy(self) -> NDArray[Any]:
        """The elements as an array of this shape. Raises `DecodeError` as `tobytes`, and for types that numpy
        does not know: `values` has their elements.
        """
        found = NUMPY.get(self.dtype)
        if found is None:
            raise DecodeError("tensor", f"numpy has no type for {self.dtype}")
        try:
            return np.frombuffer(self.tobytes(), np.dtype(found).newbyteorder("<")).reshape(self.shape)
        except ValueError as error:
            raise DecodeError("tensor", f"numpy refuses these sizes: {error}") from error

    def torch(self) -> TorchTensor:
        """The tensor as torch's own, on the CPU and without grad, as `run.torch_tensors` makes it. Raises
        `DecodeError` as `tobytes`, `RpcInspectError` where torch is not installed.
        """
        return torch_tensor(self._record.rpc.tensors, self.number, self._storage)

    def _captured(self, meta: TensorMeta) -> bytes | None:
        return None if self._read is None else bytes_of(self._record, meta, self._read)

    def _storage(self, meta: TensorMeta) -> bytes:
        data = self._captured(meta)
        if data is None:
            raise DecodeError("tensor", self._why_none(meta))
        return data

    def _why_none(self, meta: TensorMeta) -> str:
        if meta.storage is None:
            return f"a {meta.layout} tensor has no bytes of its own: torch() has it, and its parts have bytes"
        missing = place_of(self._record, meta).missing_bytes
        if missing:
            return f"{missing:,} bytes of the tensor were not captured"
        return "it is not certain which of the captured bytes are the tensor's"

    def values(self, most: int | None = None) -> list[object]:
        """The first elements, or all, in row-major order, as exact Python numbers. Raises as `tobytes`."""
        data = self._storage(self.meta)
        return first_values(self.meta, data, math.prod(self.shape) if most is None else most)

    def statistics(self) -> Statistics:
        """What the elements come to. Raises as `tobytes`."""
        return statistics_of(self._whole(), self.meta)

    def histogram(self, told: Statistics, bins: int) -> Bins | None:
        """Returns how many finite elements lie where, from what `statistics` has told; None where none is
        finite. Raises as `tobytes`."""
        return bins_of(self._whole(), self.meta, told, bins)

    def elements(self, start: int, count: int) -> list[object | None]:
        """Returns some elements by their numbers in row-major order, without reading the others; None for
        those whose bytes were not captured. Raises `DecodeError` where no byte can be told."""
        if self._read is None or self.meta.storage is None:
            raise DecodeError("tensor", self._why_none(self.meta))
        return elements_of(self._located(), self.meta, start, count)

    def _whole(self) -> Tensors:
        """The tensors of the message, where all bytes of this one are there."""
        if self._read is None or whole_storage(self._record, self.meta) is None:
            raise DecodeError("tensor", self._why_none(self.meta))
        return self._located()

    def _located(self) -> Tensors:
        assert self._read is not None
        source = self._read.source
        return located_tensors(self._record, lambda extent: extent.read(source))


class Message:
    """A message of a run."""

    def __init__(self, run: RunModel, index: int) -> None:
        self._run = run
        self.index = index
        self.record = run.messages[index]
        """All that was decoded of it."""

    def __repr__(self) -> str:
        return f"Message(#{self.index} {self.type} {self.sender} → {self.receiver})"

    @property
    def type(self) -> str:
        """The outermost type's name."""
        return type_name(self.record.rpc.message.type)

    @property
    def sender(self) -> str:
        """Returns the worker that sent the message: its name, `worker:ID` or its address."""
        return self._run.session.source(self.record.row)

    @property
    def receiver(self) -> str:
        """Returns the worker that got the message."""
        return self._run.session.destination(self.record.row)

    @property
    def is_request(self) -> bool:
        """Returns whether the message is a request; False for an answer."""
        return self.record.tp.from_client

    @property
    def housekeeping(self) -> bool:
        """Returns whether this is housekeeping of the agents: references, contexts, start-up and shutdown."""
        return bool(self._run.housekeeping[self.record.row])

    @property
    def time_ns(self) -> int:
        """Returns when the first byte was captured, in nanoseconds since 1970."""
        return self.record.tp.first_ns

    @property
    def end_time_ns(self) -> int:
        """Returns when the last byte was captured, in nanoseconds since 1970."""
        return self.record.tp.last_ns

    @property
    def partner(self) -> Message | None:
        """The answer to a request, or the request of an answer."""
        session = self._run.session
        row = session.messages.partner[self.record.row]
        return None if row < 0 else Message(self._run, int(session.index[row]))

    @property
    def exchange(self) -> Exchange | None:
        """Returns the exchange of the message; None for an answer whose request was not captured."""
        partner = None if self.is_request else self.partner
        index = self.index if self.is_request else None if partner is None else partner.index
        return None if index is None else self._run.calls[index]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors in the order of the tensor table, parts of sparse tensors among them."""
        return tensors_of(self.record, LastRead(self._run.bytes))


def tensors_of(record: RpcRecord, read: LastRead | None = None) -> tuple[Tensor, ...]:
    """The tensors of a record, in the order of its table."""
    return tuple([Tensor(record, number, read) for number in range(len(record.like.tensors))])


_SAME = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
NUMPY: Mapping[str, str] = {
    **{name: name for name in _SAME.split()},
    **{f"q{name}": name for name in ("uint8", "int8", "int32")},
}
"""torch's dtype → numpy's; of quantized tensors that of their integers."""
