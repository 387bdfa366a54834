"""Tensors of messages as torch's own: dtype, strides, offset, conj and neg bits, quantizer and sparse layout.

In: a tensor table and the bytes of its storages. Out: a tensor of torch on the CPU. Torch makes it of bytes
and numbers that were checked before: nothing is unpickled, and no name of a capture is looked up in torch but
those of the types in `rpc.dtypes`. Torch takes seconds to import and need not be there, so that it is
imported when the first tensor is asked for. No view and no command asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from rpcinspect.errors import DecodeError, RpcInspectError
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import check_within

if TYPE_CHECKING:
    import torch

    TorchTensor: TypeAlias = torch.Tensor

SCHEMES = frozenset({"per_tensor_affine", "per_channel_affine", "per_channel_affine_float_qparams"})
"""Ways to quantize that torch can rebuild."""


def torch_tensor(
    metas: Sequence[TensorMeta], index: int, storage: Callable[[TensorMeta], bytes]
) -> TorchTensor:
    """Returns one tensor of a table as torch's own; `storage` gives all bytes of a row's storage. The tensor
    owns its memory, which is as large as that storage was, and requires no grad.

    Raises `RpcInspectError` where torch is not installed or too old for the type, `DecodeError` where the
    table contradicts itself or the storage.
    """
    try:
        import torch
    except ImportError as error:
        raise RpcInspectError(
            "Tensor.torch() needs PyTorch, which is not installed: pip install 'rpcinspect[replay]'"
        ) from error
    meta = metas[index]
    parts = {name: torch_tensor(metas, part, storage) for name, part in meta.parts}
    try:
        with torch.no_grad():
            if meta.layout != "strided":
                return _sparse(meta, parts)
            return _strided(meta, parts, storage(meta))
    except (RuntimeError, TypeError, ValueError) as error:
        raise DecodeError("tensor", f"torch refuses tensor {index}: {error}") from error


def _sparse(meta: TensorMeta, parts: dict[str, TorchTensor]) -> TorchTensor:
    import torch

    if meta.layout == "sparse_coo":
        return torch.sparse_coo_tensor(parts["indices"], parts["values"], meta.sizes, check_invariants=True)
    return torch.sparse_csr_tensor(
        parts["crow_indices"], parts["col_indices"], parts["values"], meta.sizes, check_invariants=True
    )


def _strided(meta: TensorMeta, parts: dict[str, TorchTensor], data: bytes) -> TorchTensor:
    import torch

    dtype = getattr(torch, meta.dtype, None)
    if dtype is None:
        raise RpcInspectError(f"torch {torch.__version__} has no type {meta.dtype}")
    check_within(meta, len(data))  # torch would let a storage that is too small grow
    raw = torch.empty(len(data), dtype=torch.uint8)
    if data:
        raw.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    kind = DTYPES[meta.dtype].kind
    tensor = _quantized(meta, parts, dtype) if kind == "quantized" else torch.empty(0, dtype=dtype)
    tensor.set_(raw.untyped_storage(), meta.storage_offset, meta.sizes, meta.strides)
    if meta.conj:
        tensor = tensor.conj()
    return torch._neg_view(tensor) if meta.neg else tensor


def _quantized(meta: TensorMeta, parts: dict[str, TorchTensor], dtype: torch.dtype) -> TorchTensor:
    """A quantized tensor without elements. Torch takes the numbers of its channels as they are."""
    import torch

    how = meta.quantizer
    if how is None or how.scheme not in SCHEMES:
        raise DecodeError("tensor", f"a tensor of {meta.dtype} without a quantizer that torch knows")
    if how.axis is None:
        return torch._empty_affine_quantized([0], scale=how.scale, zero_point=how.zero_point, dtype=dtype)
    scales, zero_points = parts["scales"], parts["zero_points"]
    if not 0 <= how.axis < len(meta.sizes) or not (
        scales.numel() == zero_points.numel() == meta.sizes[how.axis]
    ):
        raise DecodeError("tensor", f"scales and zero points do not match dimension {how.axis}")
    sizes = [size if dimension == how.axis else 0 for dimension, size in enumerate(meta.sizes)]
    return torch._empty_per_channel_affine_quantized(
        sizes, scales=scales, zero_points=zero_points, axis=how.axis, dtype=dtype
    )
