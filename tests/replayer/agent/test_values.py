"""Rows and values that the process of a played worker takes and tells, without that process."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.pickles.tree import Dict, Global, PickleCall
from rpcinspect.replayer.agent.values import read_value, rows_of, table_of, told_value
from rpcinspect.rpc.tensor import Quantizer, TensorMeta, read_tensor_table, to_tensor_table

TENSOR = PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (2,))
DEVICE = PickleCall(Global("torch", "device"), ("cuda:1",))
INTS = PickleCall(Global("torch.jit._pickle", "build_intlist"), ([1, 2],))

METAS = (
    TensorMeta(dtype="float32", sizes=(2, 3), strides=(1, 2), storage=0, storage_numel=6, requires_grad=True),
    TensorMeta(
        dtype="complex64", sizes=(2,), strides=(1,), storage=1, storage_numel=3, storage_offset=1, conj=True
    ),
    TensorMeta(
        dtype="qint8",
        sizes=(4,),
        strides=(1,),
        storage=2,
        storage_numel=4,
        quantizer=Quantizer(scheme="per_tensor_affine", scale=0.5, zero_point=3),
    ),
)


def test_rows_and_back() -> None:
    rows = json.loads(json.dumps(rows_of(to_tensor_table(METAS), lambda device: device)))
    for row, meta in zip(rows, METAS, strict=True):
        row["storage_numel"] = meta.storage_numel  # the process tells it of the storage that it has
    assert read_tensor_table(table_of(rows)) == METAS


def test_devices_are_placed() -> None:
    meta = TensorMeta(dtype="float32", sizes=(1,), strides=(1,), storage=0, storage_numel=1, device="cuda:1")
    (row,) = rows_of(to_tensor_table([meta]), {"cuda:1": "cuda:0"}.__getitem__)
    assert row["device"] == "cuda:0"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (TENSOR, ["tensor", 2]),
        (DEVICE, ["device", "cuda:1"]),
        (INTS, ["list", [["plain", 1], ["plain", 2]]]),
        ((True, None, "x"), ["tuple", [["plain", True], ["plain", None], ["plain", "x"]]]),
        (0.1, ["float", (0.1).hex()]),
        (Dict([("k", 1)]), ["dict", [[["plain", "k"], ["plain", 1]]]]),
    ],
    ids=["tensor", "device", "ints", "tuple", "float", "dict"],
)
def test_an_argument(value: Any, told: Any) -> None:
    assert json.loads(json.dumps(told_value(value))) == told


def test_an_argument_that_python_can_not_give() -> None:
    with pytest.raises(ReplayError, match="an object"):
        told_value([PickleCall(Global("app", "Thing"), ())])


def test_a_result() -> None:
    found = read_value(["tuple", [["tensor", 1], ["float", "nan"], ["plain", 3]]])
    assert found[0].function.name == "build_tensor_from_id"
    assert found[0].args == (1,)
    assert math.isnan(found[1])
    assert found[2] == 3


@pytest.mark.parametrize(
    "told", [3, ["tensor"], ["tensor", "x"], ["else", 1], ["plain", [1]], ["float", "x"], None], ids=str
)
def test_nonsense_is_no_result(told: Any) -> None:
    with pytest.raises(ReplayError, match="sent no value"):
        read_value(told)


@pytest.mark.parametrize("change", [{"dtype": "float99"}, {"sizes": "x"}, {"parts": [1]}, {"layout": None}])
def test_nonsense_is_no_tensor(change: dict[str, Any]) -> None:
    rows = rows_of(to_tensor_table(METAS[:1]), lambda device: device)
    rows[0] |= {"storage_numel": 6, **change}
    with pytest.raises(ReplayError, match="impossible tensors"):
        table_of(rows)
