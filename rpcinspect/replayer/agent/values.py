"""Captured tensors and JIT values as the process of a played worker takes them, and what it tells as
messages.

In: tensor tables and values of captured messages; rows and values that the process tells. Out: the other. A
value is a pair of its kind and what it is, since JSON has fewer kinds; floats are written in hexadecimal, so
that all bits of a number stay (a NaN is a NaN). What the process tells may be anything: it is checked.

The other side is `agent/tensors.py` and `agent/main.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from rpcinspect.errors import DecodeError, ReplayError
from rpcinspect.pickles.semantic import device, rref_fork, tensor_index, untag
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Value
from rpcinspect.replayer.workers.worker_protocol import Object
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.tensor import TensorMeta, read_tensor_table, to_tensor_table

RRefPlace = Callable[[tuple[int, int]], tuple[int, int]]
MapDevice = Callable[[str], str]
"""Where a captured device is in this replay."""

MAX_TENSORS = 1 << 16


def rows_of(table: bytes, place: MapDevice) -> list[Object]:
    """The rows of a tensor table. Raises `ReplayError` where it can't be read."""
    try:
        metas = read_tensor_table(table)
    except DecodeError as error:
        raise ReplayError(f"its tensor table: {error}") from error
    return [{**to_builtins(meta), "device": place(meta.device)} for meta in metas]


def table_of(rows: Sequence[Object]) -> bytes:
    """Returns the tensor table of reported tensors. Raises `ReplayError` for anything else."""
    try:
        metas = convert(rows[:MAX_TENSORS], list[TensorMeta])
        if any(meta.dtype not in DTYPES for meta in metas):
            raise ValueError("a dtype that is not known")
        # where they lie here is this replay's doing
        return to_tensor_table([replace(meta, device="cpu") for meta in metas])
    except (KeyError, TypeError, ValueError, IndexError, DecodeError) as error:  # msgspec's are ValueErrors
        raise ReplayError(f"the played worker's process sent impossible tensors: {error!r}") from error


def told_value(value: Value, rref: RRefPlace = lambda captured: captured) -> Any:
    """Returns a captured argument of an operator or a TorchScript function as JSON; `rref`: maps the ids of
    an RRef to those in the process. Raises `ReplayError` for an object, which JSON can't hold."""
    index, where, fork = tensor_index(value), device(value), rref_fork(value)
    if index is not None:
        return "tensor", index
    if where is not None:
        return "device", where
    if fork is not None:
        return "rref", rref(fork.rref_id)
    plain = untag(value)
    if type(plain) in (list, tuple):
        return type(plain).__name__, [told_value(one, rref) for one in plain]
    if type(plain) is Dict:
        return "dict", [[told_value(k, rref), told_value(v, rref)] for k, v in plain.pairs]
    if type(plain) is float:
        return "float", plain.hex()
    if plain is None or type(plain) in (bool, int, str):
        return "plain", plain
    raise ReplayError("it has an object as an argument, which Python can't pass")


def read_value(told: Any) -> Value:
    """Returns a result in JSON as a value of a message. Raises `ReplayError`."""
    try:
        return _read(told)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ReplayError(f"the played worker's process sent no value: {error!r}") from error


def _read(told: Any) -> Value:
    kind, what = told
    if kind == "tensor":
        return PickleCall(_BUILD_TENSOR, (int(what),))
    if kind in ("list", "tuple"):
        items = [_read(one) for one in what]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return Dict([(_read(k), _read(v)) for k, v in what])
    if kind == "device":
        return PickleCall(_DEVICE, (str(what),))
    if kind == "float":
        return float.fromhex(what)
    if kind == "plain" and (what is None or type(what) in (bool, int, str)):
        return what
    raise TypeError(f"{kind}: {what}")


_BUILD_TENSOR = Global("torch.jit._pickle", "build_tensor_from_id")
_DEVICE = Global("torch", "device")
