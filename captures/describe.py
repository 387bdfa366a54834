"""The truth in words: one printed line per event, and values and tensors as the worker sees them.

In: any argument or result of a call. Out: plain JSON values with the names of the output contract. Tensors
are read where they lie (their bytes by address), never through the pickles that travel.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import math
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

_lock = threading.RLock()
_lines = 0


def truth(event: str, **fields: Any) -> None:
    """Print one line of truth: the order of a worker's lines is the order in which things happened there."""
    global _lines
    with _lock:
        line = {
            "event": event,
            "n": _lines,
            "time_ns": time.time_ns(),
            "thread": threading.current_thread().name,
            **fields,
        }
        _lines += 1
        sys.stdout.write("TRUTH " + json.dumps(line, allow_nan=False) + "\n")
        sys.stdout.flush()


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """The logical elements of a strided tensor, row-major: conj and neg resolved, quantised as integers."""
    plain = tensor.detach()
    if plain.is_quantized:
        plain = plain.int_repr()
    plain = plain.resolve_conj().resolve_neg().contiguous()
    size = plain.numel() * plain.element_size()
    return ctypes.string_at(plain.data_ptr(), size) if size else b""


def storage_bytes(tensor: torch.Tensor) -> bytes:
    storage = tensor.detach().untyped_storage()
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def quantizer_of(tensor: torch.Tensor) -> dict[str, Any] | None:
    if not tensor.is_quantized:
        return None
    scheme = str(tensor.qscheme()).removeprefix("torch.")
    if "per_tensor" in scheme:
        return {
            "scheme": scheme,
            "scale": tensor.q_scale(),
            "zero_point": tensor.q_zero_point(),
            "axis": None,
        }
    return {
        "scheme": scheme,
        "scale": tensor.q_per_channel_scales().tolist(),
        "zero_point": tensor.q_per_channel_zero_points().tolist(),
        "axis": tensor.q_per_channel_axis(),
    }


def describe_tensor(tensor: torch.Tensor, storages: dict[int, int]) -> dict[str, Any]:
    """One tensor in the words of the output contract, as this worker sees it."""
    facts: dict[str, Any] = {
        "dtype": dtype_name(tensor.dtype),
        "shape": list(tensor.shape),
        "layout": str(tensor.layout).removeprefix("torch."),
        "device": str(tensor.device),
        "requires_grad": tensor.requires_grad,
        "parameter": isinstance(tensor, torch.nn.Parameter),
        "leaf": tensor.is_leaf,
    }
    if tensor.device.type == "meta":
        return facts
    if tensor.layout is torch.sparse_coo:
        parts = {"indices": tensor.detach()._indices(), "values": tensor.detach()._values()}
        facts["coalesced"] = tensor.is_coalesced()
    elif tensor.layout is torch.sparse_csr:
        parts = {
            "crow_indices": tensor.detach().crow_indices(),
            "col_indices": tensor.detach().col_indices(),
            "values": tensor.detach().values(),
        }
    else:
        parts = {}
    if parts:
        facts["parts"] = {name: describe_tensor(part, {}) for name, part in parts.items()}
        return facts
    storage = tensor.detach().untyped_storage()
    facts |= {
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
        "quantizer": quantizer_of(tensor),
        "storage": storages.setdefault(storage._cdata, len(storages)),
        "storage_nbytes": storage.nbytes(),
    }
    elements, whole = raw_bytes(tensor), storage_bytes(tensor)
    facts |= {"sha256": sha256(elements), "storage_sha256": sha256(whole), "head_hex": elements[:16].hex()}
    return facts


@contextlib.contextmanager
def unprofiled() -> Iterator[None]:
    """Operators that run in here leave no profiler events in this thread."""
    torch.autograd._enable_record_function(False)
    try:
        yield
    finally:
        torch.autograd._enable_record_function(True)


class Describer:
    """Describes one value (an argument list, an answer).

    Tensors are numbered in the order in which pickle meets them. Profilers must not see what describing does.
    """

    def __init__(self) -> None:
        self.tensors: list[dict[str, Any]] = []
        self._seen: dict[int, int] = {}
        self._keep: list[Any] = []
        self._storages: dict[int, int] = {}

    def value(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            if id(item) not in self._seen:
                self._seen[id(item)] = len(self.tensors)
                self._keep.append(item)
                with unprofiled():
                    self.tensors.append(describe_tensor(item, self._storages))
            return {"tensor": self._seen[id(item)]}
        if item is None or isinstance(item, bool | int | str):
            return item
        if isinstance(item, float):
            return item if math.isfinite(item) else str(item)
        if isinstance(item, tuple | list):
            return {type(item).__name__: [self.value(part) for part in item]}
        if isinstance(item, dict):
            return {"dict": [[self.value(key), self.value(part)] for key, part in item.items()]}
        if isinstance(item, rpc.RRef | rpc.PyRRef):
            return rref_ids(item)
        if isinstance(item, bytes):
            return {"bytes": item.hex()}
        return {"object": f"{type(item).__module__}.{type(item).__qualname__}"}


def rref_ids(rref: Any) -> dict[str, Any]:
    """The ids that this worker's own handle prints; an owner's handle has no fork id."""
    pairs = re.findall(r"created_on=(\d+), local_id=(\d+)", str(rref))
    ids = [[int(worker), int(local)] for worker, local in pairs]
    return {"rref_id": ids[0], "fork_id": ids[1] if len(ids) > 1 else None, "owner": rref.owner_name()}


def described(name: str, item: Any) -> dict[str, Any]:
    describer = Describer()
    return {name: describer.value(item), "tensors": describer.tensors}


def error_of(error: BaseException) -> dict[str, str]:
    return {"type": f"{type(error).__module__}.{type(error).__qualname__}", "text": str(error)}


def function_name(function: Any) -> str:
    """The name under which a function travels: an operator, a TorchScript name, or module.qualname."""
    if isinstance(function, torch.jit.ScriptFunction):
        return str(torch._jit_internal._qualified_name(function))
    builtin = torch.jit._builtins._find_builtin(function)
    if builtin is not None:
        return str(builtin)
    function = getattr(function, "__wrapped_async__", function)
    return f"{function.__module__}.{function.__qualname__}"


def current_context() -> int | None:
    """The id of the distributed autograd context of this thread."""
    try:
        return int(dist_autograd._current_context()._context_id())
    except RuntimeError:
        return None
