"""The small value types that RPC messages share: worker ids, RRef and fork ids, 16/48-bit ids, device maps.

In and out: plain pickle values (`GloballyUniqueId` travels as a 2-tuple of ints). Nothing is assumed about
the values: what does not fit raises `DecodeError("rpc", …)`.
Mirrors torch/csrc/distributed/rpc/types.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.pickles.tree import Value

WorkerId: TypeAlias = int
"""`worker_id_t`, 16 bits, -1 where there is none."""

DeviceMapping: TypeAlias = Mapping[str, str]
"""Device of the sender → device of the receiver, as torch writes devices: `cpu`, `cuda:0`; in the order
written."""

LOCAL_ID_BITS = 48
"""Context, autograd message and profiling ids hold their creator above this many bits of counter."""
_LOCAL_MASK = (1 << LOCAL_ID_BITS) - 1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class GloballyUniqueId(Struct, frozen=True):
    """An id that is unique in the job: the worker that made it and that worker's counter."""

    created_on: WorkerId
    local_id: int

    @classmethod
    def from_value(cls, value: Value, what: str = "id") -> GloballyUniqueId:
        """Reads the pickled pair (worker id, counter); `what` names it in the DecodeError."""
        if type(value) is tuple and len(value) == 2:
            created_on, local_id = value
            if type(created_on) is type(local_id) is int and is_worker_id(created_on) and _fits(local_id):
                return cls(created_on, local_id)
        wanted = "a pair of a 16-bit and a 64-bit int"
        raise DecodeError("rpc", f"{what}: expected {wanted}, found {describe(value)}")

    def to_value(self) -> tuple[int, int]:
        """The pair (worker id, counter) as torch pickles it."""
        return (self.created_on, self.local_id)


RRefId: TypeAlias = GloballyUniqueId
ForkId: TypeAlias = GloballyUniqueId
ProfilingId: TypeAlias = GloballyUniqueId


def pack_id(worker_id: WorkerId, counter: int) -> int:
    """The 64-bit id of a context or an autograd message: 16 bits of creator, 48 bits of counter, signed."""
    packed = (worker_id & 0xFFFF) << LOCAL_ID_BITS | counter & _LOCAL_MASK
    return packed - (1 << 64) if packed > _INT64_MAX else packed


def unpack_id(packed: int) -> tuple[WorkerId, int]:
    """(creator, counter) of a 64-bit id; both are as unsigned, so -1 (no id) gives (0xFFFF, 2^48 - 1)."""
    return packed >> LOCAL_ID_BITS & 0xFFFF, packed & _LOCAL_MASK


def is_worker_id(value: int) -> bool:
    """Returns whether the value has 16 bits. torch's C++ silently cuts a larger one to the last 16 bits."""
    return -(1 << 15) <= value < 1 << 15


def as_worker_id(value: Value, what: str) -> WorkerId:
    """A worker id; `what` names it in the error."""
    if type(value) is int and is_worker_id(value):
        return value
    raise DecodeError("rpc", f"{what}: expected a 16-bit int, found {describe(value)}")


def as_int(value: Value, what: str) -> int:
    """A plain int that fits 64 bits; `what` names it in the error."""
    if type(value) is int and _fits(value):
        return value
    raise DecodeError("rpc", f"{what}: expected a 64-bit int, found {describe(value)}")


def as_bool(value: Value, what: str) -> bool:
    """A bool and nothing else; `what` names it in the error."""
    if value is True or value is False:
        return bool(value)
    raise DecodeError("rpc", f"{what}: expected a bool, found {describe(value)}")


def _fits(value: int) -> bool:
    return _INT64_MIN <= value <= _INT64_MAX


def describe(value: Value) -> str:
    """Describes a value for an error text by its type and size; the content is hostile and may be long."""
    if value is None:
        return "None"
    name = type(value).__name__
    if type(value) in (tuple, list, str, bytes):
        return f"{name} of length {len(value)}"
    return name
