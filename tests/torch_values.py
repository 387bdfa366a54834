"""Tensors of captured messages as torch makes them of the same bytes: an opinion that is not ours."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.pipeline import Decoding
from rpcinspect.run.tensors import LastRead, bytes_of
from rpcinspect.views.jsonl.lines import message_line
from tests.decoded import parse
from tests.places import recorded

Json = dict[str, Any]

PER_TENSOR = "per_tensor_affine"


@dataclass(frozen=True)
class Seen:
    """A message's line, and its tensors: None where bytes are missing."""

    line: Json
    tensors: list[Any]


def tensors_of(path: Path) -> list[Seen]:
    """Every message of a capture, with its tensors; skips where there is no torch."""
    torch = pytest.importorskip("torch")
    with Decoding([str(path)]) as decoding:
        records = list(decoding.records())
        out = []
        for record in records:
            (line,) = parse(message_line(record, decoding.session, decoding.bytes))
            metas = record.rpc.tensors
            storages = [bytes_of(record, meta, LastRead(decoding.bytes)) for meta in metas]
            out.append(Seen(line, _rebuild(torch, line["tensors"], storages)))
    return out


def _rebuild(torch: Any, shown: list[Json], storages: list[bytes | None]) -> list[Any]:
    """From dtype, shape, stride, offset and flags of the lines and the bytes of the storages."""
    out: list[Any] = [None] * len(shown)
    for index, tensor in enumerate(shown):
        storage = storages[index]
        if storage is not None:
            plain = torch.frombuffer(bytearray(storage), dtype=torch.uint8) if storage else torch.empty(0)
            elements = plain.view(_dtype(torch, tensor["dtype"])) if storage else _empty(torch, tensor)
            view = elements.as_strided(tensor["shape"], tensor["stride"], tensor["offset"])
            view = torch.conj(view) if tensor["conj"] else view
            out[index] = torch._neg_view(view) if tensor["neg"] else view
    for index, tensor in enumerate(shown):
        parts = {name: out[part] for name, part in tensor["parts"].items()}
        if tensor["layout"] == "sparse_coo" and all(part is not None for part in parts.values()):
            out[index] = torch.sparse_coo_tensor(
                parts["indices"], parts["values"], tensor["shape"], check_invariants=True
            )
    return out


def _dtype(torch: Any, name: str) -> Any:
    """Quantized tensors travel as their integers."""
    return getattr(torch, {"quint8": "uint8", "qint8": "int8", "qint32": "int32"}.get(name, name))


def _empty(torch: Any, tensor: Json) -> Any:
    return torch.empty(0, dtype=_dtype(torch, tensor["dtype"]))


def digest(tensor: Any) -> str:
    """sha256 of the logical elements of a dense tensor, as torch lays them out."""
    import torch

    plain = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return hashlib.sha256(plain.view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def described(tensor: Any) -> Json:
    """A tensor in the words of the truth files: `tinfo` of captures/torch/scripts/common.py."""
    import torch

    facts: Json = {"shape": list(tensor.shape), "dtype": str(tensor.dtype)}
    if tensor.layout is not torch.strided:
        dense = tensor.to_dense().double().reshape(-1)[:8].tolist()
        return {"layout": str(tensor.layout), **facts, "dense": dense}
    if tensor.is_complex():
        first = [str(value) for value in tensor.resolve_conj().reshape(-1)[:4].tolist()]
        return {**facts, "first": first, "sum": None}
    return {**facts, "first": tensor.reshape(-1)[:4].tolist(), "sum": float(tensor.double().sum())}


@cache
def rounds_as_recorded() -> bool:
    """Whether products of matrices have the bits here that they have in captures: MKL chooses its kernels by
    the processor."""
    import torch

    path = recorded("torch-suite/DistAutogradTest.test_backward_different_tensor_dims.pcap")
    seen = {one.line["index"]: one.tensors for one in tensors_of(path)}
    (one, other), (product,), factors, (chain,) = seen[12], seen[13], seen[14], seen[15]
    with torch.no_grad():
        return torch.equal(one @ other, product) and torch.equal(torch.linalg.multi_dot(factors), chain)


def need_the_same_rounding() -> None:
    """Skips on a processor that rounds otherwise than the one on which captures were recorded."""
    if not rounds_as_recorded():
        pytest.skip("products of matrices are rounded otherwise on this processor than in captures")
