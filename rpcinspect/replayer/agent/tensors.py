"""Tensors, values and remote references as JSON and raw bytes, in the processes that have torch.

In: what a tensor table says, row by row, and the bytes of its storages; or tensors of torch. Out: the other.
Bits are never looked at as numbers, so that NaN payloads, negative zeros and denormals stay; strides,
offsets, shared storages and lazy conj and neg bits stay too. `RemoteRefs`: commands to make a remote
reference, to hand one on → its ids, which torch counts; its value, unpickled by nobody.

Runs in a played worker's process only (`agent/main.py`); the other side is `agent/values.py`. Mirrors
`remote` of torch/distributed/rpc/api.py.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch._C import _distributed_rpc as rpc_c

from rpcinspect.replayer.workers.worker_protocol import Object

TensorRow = dict[str, Any]
"""The fields of a `TensorMeta`."""


def build(rows: Sequence[TensorRow], storages: Sequence[bytes]) -> list[torch.Tensor]:
    """The tensors of a list, parts of others left out. A row that is named twice is one tensor."""
    made: dict[int, torch.Tensor] = {}
    kept: dict[tuple[int, str], torch.UntypedStorage] = {}

    def storage(number: int, device: str) -> torch.UntypedStorage:
        if (number, device) not in kept:
            data = storages[number]
            raw = torch.empty(len(data), dtype=torch.uint8)
            if data:
                raw.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            kept[number, device] = raw.to(device).untyped_storage()
        return kept[number, device]

    def one(index: int) -> torch.Tensor:
        if index not in made:
            row = rows[index]
            parts = {name: one(part) for name, part in row["parts"]}
            made[index] = _sparse(row, parts) if row["storage"] is None else _strided(row, parts, storage)
        return made[index]

    return [one(index) for index, row in enumerate(rows) if row["part_of"] is None]


def _sparse(row: TensorRow, parts: dict[str, torch.Tensor]) -> torch.Tensor:
    if row["layout"] == "sparse_coo":
        both = parts["indices"], parts["values"]
        return torch.sparse_coo_tensor(*both, row["sizes"], check_invariants=False)
    three = parts["crow_indices"], parts["col_indices"], parts["values"]
    return torch.sparse_csr_tensor(*three, row["sizes"], check_invariants=False)


def _strided(row: TensorRow, parts: dict[str, torch.Tensor], storage: Any) -> torch.Tensor:
    dtype, place = getattr(torch, row["dtype"]), (row["storage_offset"], row["sizes"], row["strides"])
    raw = storage(row["storage"], row["device"])
    quantizer = row["quantizer"]
    if quantizer is not None:
        typed = torch.storage.TypedStorage(wrap_storage=raw, dtype=dtype, _internal=True)
        scheme = getattr(torch, quantizer["scheme"])
        if quantizer["axis"] is None:
            how: tuple[Any, ...] = (scheme, quantizer["scale"], quantizer["zero_point"])
        else:
            how = (scheme, parts["scales"], parts["zero_points"], quantizer["axis"])
        return torch._utils._rebuild_qtensor(typed, *place, how, False, None)
    tensor = torch.empty(0, dtype=dtype, device=row["device"]).set_(raw, *place)
    if row["conj"]:
        tensor = tensor.conj()
    return torch._neg_view(tensor) if row["neg"] else tensor


def tell(tensors: Sequence[torch.Tensor]) -> tuple[list[TensorRow], list[bytes]]:
    """The rows and the storages of tensors, in the order in which torch would write them."""
    teller = _Teller(len(tensors))
    with torch.no_grad():
        rows = [teller.row(index, tensor) for index, tensor in enumerate(tensors)]
    return rows + teller.parts, teller.storages


class _Teller:
    """Collects rows and storages of one list of tensors."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.parts: list[TensorRow] = []
        self.storages: list[bytes] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        """Storages whose addresses must not be used again meanwhile."""

    def row(self, index: int, tensor: torch.Tensor, part_of: int | None = None) -> TensorRow:
        found: TensorRow = {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "sizes": list(tensor.shape),
            "strides": [],
            "layout": str(tensor.layout).removeprefix("torch."),
            "device": str(tensor.device),
            "requires_grad": tensor.requires_grad,
            "parts": [],
            "part_of": part_of,
        }
        plain = tensor.detach()
        if plain.layout == torch.sparse_coo:
            self._add(found, index, {"indices": plain._indices(), "values": plain._values()})
        elif plain.layout == torch.sparse_csr:
            names = {"crow_indices": plain.crow_indices(), "col_indices": plain.col_indices()}
            self._add(found, index, {**names, "values": plain.values()})
        else:
            self._strided(found, index, plain)
        return found

    def _strided(self, row: TensorRow, index: int, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        row["strides"] = list(tensor.stride())
        row["storage_offset"] = tensor.storage_offset()
        row["conj"], row["neg"] = tensor.is_conj(), tensor.is_neg()
        row["storage_numel"] = storage.nbytes() // tensor.element_size()
        row["storage"] = self._storage(storage)
        if tensor.is_quantized:
            scheme = tensor.qscheme()
            quantizer = {"scheme": str(scheme).removeprefix("torch."), "axis": None}
            if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
                quantizer |= {"scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
            else:
                quantizer["axis"] = tensor.q_per_channel_axis()
                scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
                self._add(row, index, {"scales": scales, "zero_points": zeros})
            row["quantizer"] = quantizer

    def _add(self, row: TensorRow, index: int, parts: dict[str, torch.Tensor]) -> None:
        """Adds the parts of a sparse or quantized tensor; they are numbered after the list's own tensors."""
        for name, part in parts.items():
            row["parts"].append([name, self.count + len(self.parts)])
            self.parts.append(self.row(-1, part, index))

    def _storage(self, storage: torch.UntypedStorage) -> int:
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = self._numbers[storage._cdata] = len(self.storages)
            self._alive.append(storage)
            raw = storage.cpu()
            self.storages.append(ctypes.string_at(raw.data_ptr(), raw.nbytes()) if raw.nbytes() else b"")
        return number


def value(told: Any, tensors: Sequence[torch.Tensor], rrefs: Mapping[tuple[int, int], Any]) -> Any:
    """An argument of an operator or a TorchScript function."""
    kind, what = told
    if kind == "tensor":
        return tensors[what]
    if kind in ("list", "tuple"):
        items = [value(one, tensors, rrefs) for one in what]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {value(key, tensors, rrefs): value(one, tensors, rrefs) for key, one in what}
    if kind == "rref":
        return rrefs[what[0], what[1]]
    if kind == "device":
        return torch.device(what)
    return float.fromhex(what) if kind == "float" else what


def tell_value(found: Any, tensors: list[torch.Tensor]) -> Any:
    """What an operator or a TorchScript function returned; its tensors are added to the list."""
    if isinstance(found, torch.Tensor):
        tensors.append(found)
        return "tensor", len(tensors) - 1
    if isinstance(found, (list, tuple)):
        return type(found).__name__, [tell_value(one, tensors) for one in found]
    if isinstance(found, dict):
        return "dict", [[tell_value(k, tensors), tell_value(v, tensors)] for k, v in found.items()]
    if isinstance(found, torch.device):
        return "device", str(found)
    if isinstance(found, float):
        return "float", found.hex()
    if found is None or isinstance(found, (bool, int, str)):
        return "plain", found
    raise TypeError(f"torch's answer is a {type(found).__name__}, which can't be sent on")


def operands(schema: Any, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the positional arguments, and the keyword-only ones."""
    by_place, by_name = [], {}
    for argument, one in zip(schema.arguments, args, strict=True):
        if argument.kwarg_only:
            by_name[argument.name] = one
        else:
            by_place.append(one)
    return by_place, by_name


NO_TIMEOUT = 0.0
"""torch's word for it: who waits is the other side."""


def invoke(
    command: Object, pickle: bytes, tensors: Sequence[torch.Tensor], handles: Mapping[tuple[int, int], Any]
) -> Any:
    """Sends a request; returns the future of the answer, or the handle of a remote call's RRef."""
    to, kind, remote = rpc.get_worker_info(command["to"]), command["kind"], command["remote"]
    send: Any
    if kind == "python":
        send = rpc_c._invoke_remote_python_udf if remote else rpc_c._invoke_rpc_python_udf
        return send(to, pickle, list(tensors), NO_TIMEOUT, command["async"])
    args = [value(one, tensors, handles) for one in command["args"]]
    if kind == "builtin":
        schema = torch._C.parse_schema(command["function"])
        by_place, by_name = operands(schema, args)
        send = rpc_c._invoke_remote_builtin if remote else rpc_c._invoke_rpc_builtin
        return send(to, schema.name, NO_TIMEOUT, *by_place, **by_name)
    if remote:
        send = rpc_c._invoke_remote_torchscript
        return send(to.name, command["function"], NO_TIMEOUT, command["async"], *args)
    send = rpc_c._invoke_rpc_torchscript
    return send(to.name, command["function"], tuple(args), {}, NO_TIMEOUT, command["async"])


class RemoteRefs:
    """RRefs of a played worker, by the ids that torch gave them. Handles are kept until the process ends:
    torch would report a dropped one to the owner, and nobody would hear the answer."""

    def __init__(self) -> None:
        self.handles: dict[tuple[int, int], Any] = {}

    def keep(self, handle: Any) -> Object:
        """The ids of the RRef and of the fork that a handle stands for."""
        rref, fork = ids_of(str(handle))
        self.handles[rref] = handle
        return {"rref": rref, "fork": fork}

    def adopt(self, fork: Sequence[Any]) -> None:
        """Takes an RRef from an answer; torch reports it to the owner or the parent."""
        self.handles[fork[1], fork[2]] = rpc_c.PyRRef._deserialize(tuple(fork))

    def fork(self, rref: Sequence[int]) -> Object:
        """Makes one more fork, to be sent in a pickle; returns the ids."""
        _, rref_on, rref_local, fork_on, fork_local, *_ = self.handles[rref[0], rref[1]]._serialize()
        return {"rref": (rref_on, rref_local), "fork": (fork_on, fork_local)}


def ids_of(shown: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns RRef and fork from `UserRRef(RRefId = GloballyUniqueId(created_on=0, local_id=4), ForkId = …)`:
    torch shows the ids nowhere else without making another fork."""
    numbers = [(int(on), int(local)) for on, local in _ID.findall(shown)]
    if len(numbers) != 2:
        raise RuntimeError(f"the ids of an RRef in {shown!r}")
    return numbers[0], numbers[1]


_ID = re.compile(r"created_on=(\d+), local_id=(\d+)")
