"""Tensors as torch's own, against what torch makes of the lines of `decode` and the same bytes."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from rpcinspect.errors import DecodeError, RpcInspectError
from rpcinspect.rpc.tensor import Quantizer, TensorMeta
from rpcinspect.run.run import open_run
from rpcinspect.run.torch_tensors import torch_tensor
from tests.places import CAPTURES, recorded
from tests.torch_values import digest, tensors_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:ComplexHalf", "ignore:torch.quantize_per_tensor", "ignore:Sparse CSR"
)

FLOATS = TensorMeta(dtype="float32", sizes=(2, 3), strides=(3, 1), storage=0, storage_numel=6)
CAPTURED = (
    CAPTURES / "dtype_zoo.pcap.gz",
    CAPTURES / "views_alias.pcap.gz",
    recorded("torch/sparse.pcap"),
    recorded("torch/kitchen.pcap"),
)


def of_bytes(meta: TensorMeta, data: bytes, *parts: TensorMeta) -> torch.Tensor:
    """The first tensor of a table all of whose rows have the same bytes."""
    return torch_tensor((meta, *parts), 0, lambda meta: data)


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: path.name)
def test_tensors_are_those_that_torch_makes_of_the_lines(path: Path) -> None:
    seen: Counter[str] = Counter()
    with open_run(str(path)) as run:
        told = {one.line["index"]: one for one in tensors_of(path)}
        for index in range(len(run)):
            for number, tensor in enumerate(run.message(index).tensors):
                theirs = told[index].tensors[number]
                if theirs is None:
                    continue
                ours, line = tensor.torch(), told[index].line["tensors"][number]
                seen[tensor.dtype] += 1
                seen[tensor.meta.layout] += 1
                check(ours, theirs, tensor.meta)
                assert ours.layout == theirs.layout
                if tensor.meta.layout == "strided":
                    assert (list(ours.stride()), ours.storage_offset()) == (line["stride"], line["offset"])
                    assert (ours.is_conj(), ours.is_neg()) == (line["conj"], line["neg"])
    if path.name == "dtype_zoo.pcap.gz":
        assert {"bfloat16", "float8_e5m2", "float4_e2m1fn_x2", "complex64", "bool", "quint8"} <= {*seen}
        assert seen["strided"] > 100


def check(ours: torch.Tensor, theirs: torch.Tensor, meta: TensorMeta) -> None:
    """Shape, type and bits; of quantized ones those of their integers, and how they stand for numbers."""
    assert ours.shape == theirs.shape
    assert not ours.requires_grad
    if meta.layout != "strided":
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours.to_dense(), theirs.to_dense())
        return
    if ours.is_quantized:
        quantizer = meta.quantizer
        assert quantizer is not None
        assert str(ours.qscheme()) == f"torch.{quantizer.scheme}"
        if quantizer.axis is None:
            assert (ours.q_scale(), ours.q_zero_point()) == (quantizer.scale, quantizer.zero_point)
        else:
            assert ours.q_per_channel_axis() == quantizer.axis
        ours = ours.int_repr()
    assert ours.dtype == theirs.dtype
    assert digest(ours) == digest(theirs)


def test_sparse_rows_by_another_name() -> None:
    crow = TensorMeta(dtype="int64", sizes=(3,), strides=(1,), storage=0, storage_numel=3, part_of=0)
    columns = replace(crow, sizes=(2,), storage=1, storage_numel=2)
    values = replace(FLOATS, sizes=(2,), strides=(1,), storage=2, part_of=0)
    sparse = TensorMeta(
        dtype="float32",
        sizes=(2, 4),
        strides=(),
        layout="sparse_csr",
        parts=(("crow_indices", 1), ("col_indices", 2), ("values", 3)),
    )
    storages = [torch.tensor([0, 1, 2]), torch.tensor([3, 0]), torch.tensor([1.5, -2.0])]
    made = torch_tensor(
        (sparse, crow, columns, values), 0, lambda meta: storages[meta.storage or 0].numpy().tobytes()
    )
    assert torch.equal(made.to_dense(), torch.tensor([[0, 0, 0, 1.5], [-2.0, 0, 0, 0]]))


def test_a_tensor_keeps_its_bits_and_owns_its_memory() -> None:
    data = bytes.fromhex("0100c07f") + b"\0\0\0\x80" * 5
    made = of_bytes(FLOATS, data)
    made.view(-1)[1] = 3
    assert made.view(-1).view(torch.uint8).numpy().tobytes()[:4] == data[:4]
    assert of_bytes(FLOATS, data).view(-1)[1] == 0


def test_an_expanded_tensor_takes_no_more_memory_than_its_storage() -> None:
    far = replace(FLOATS, sizes=(1 << 40, 1), strides=(0, 1))
    made = of_bytes(far, bytes(4))
    assert made.shape == (1 << 40, 1)
    assert made.untyped_storage().nbytes() == 4


HOSTILE: dict[str, tuple[TensorMeta, ...]] = {
    "outside of its storage": (replace(FLOATS, sizes=(7, 1), strides=(1, 1)),),
    "far outside": (replace(FLOATS, storage_offset=1 << 60),),
    "conj of floats": (replace(FLOATS, conj=True),),
    "no quantizer": (replace(FLOATS, dtype="qint8"),),
    "a quantizer of another name": (
        replace(FLOATS, dtype="qint8", quantizer=Quantizer(scheme="load", scale=1.0, zero_point=0)),
    ),
    "an axis that is not there": (
        replace(
            FLOATS,
            dtype="qint8",
            quantizer=Quantizer(scheme="per_channel_affine", axis=9),
            parts=(("scales", 1), ("zero_points", 1)),
        ),
        FLOATS,
    ),
    "indices outside of the sizes": (
        TensorMeta(
            dtype="float32",
            sizes=(1, 1),
            strides=(),
            layout="sparse_coo",
            parts=(("indices", 1), ("values", 2)),
        ),
        TensorMeta(dtype="int64", sizes=(2, 1), strides=(1, 1), storage=0, storage_numel=3),
        replace(FLOATS, sizes=(1,), strides=(1,)),
    ),
}


@pytest.mark.parametrize("metas", HOSTILE.values(), ids=HOSTILE)
def test_what_can_not_be_is_refused(metas: tuple[TensorMeta, ...]) -> None:
    with pytest.raises(DecodeError):
        of_bytes(metas[0], b"\1" * 24, *metas[1:])


def test_bytes_that_were_not_captured_are_an_error() -> None:
    with open_run(str(recorded("torch/snap300.pcap"))) as run:
        cut = [t for i in range(len(run)) for t in run.message(i).tensors if t.missing_bytes]
        assert cut
        with pytest.raises(DecodeError, match="not captured"):
            cut[0].torch()


def test_without_torch_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    absent: Any = None
    monkeypatch.setitem(sys.modules, "torch", absent)
    with pytest.raises(RpcInspectError, match=r"rpcinspect\[replay\]"):
        of_bytes(FLOATS, bytes(24))
