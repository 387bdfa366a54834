"""What numpy itself pickles, understood without numpy."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import pytest

from rpcinspect.pickles import numpy_nodes
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.pickles.tree import Global, PickleCall


def read(value: Any, protocol: int) -> Any:
    return read_python_pickle(pickle.dumps(value, protocol)).root


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_scalars_and_dtypes(protocol: int) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(6, dtype="<i2").reshape(2, 3)
    parts = numpy_nodes.array(read(array, protocol))
    assert parts is not None
    assert (parts.shape, numpy_nodes.dtype(parts.dtype), parts.fortran) == ((2, 3), "<i2", False)
    assert bytes(parts.data) == array.tobytes()
    for code in ("<f2", "<f4", "<f8", ">f8", "|i1", "<i8", "<u4"):
        value = numpy.dtype(code).type(1)
        assert numpy_nodes.scalar(read(value, protocol)) == (type(value).__name__, 1)
        assert numpy_nodes.dtype(read(numpy.dtype(code), protocol)) == code
    assert numpy_nodes.scalar(read(numpy.bool_(True), protocol)) == ("bool_", True)


@pytest.mark.parametrize(("order", "raw"), [("<", "<"), (">", ">"), ("=", "<"), ("|", "<")])
def test_a_scalar_of_a_machine_of_the_other_order(order: str, raw: str) -> None:
    """numpy pickles a scalar in its machine's order."""
    kind = PickleCall(
        Global("numpy", "dtype"), ("f8", False, True), state=(3, order, None, None, None, -1, -1, 0)
    )
    node = PickleCall(Global("numpy._core.multiarray", "scalar"), (kind, struct.pack(f"{raw}d", 1.5)))
    assert numpy_nodes.scalar(node) == ("float64", 1.5)


def test_look_alikes() -> None:
    scalar = Global("numpy._core.multiarray", "scalar")
    for node in (
        PickleCall(None, ()),
        PickleCall(scalar, ()),
        PickleCall(scalar, None),
        PickleCall(Global("numpy", "dtype"), ([],)),
    ):
        assert numpy_nodes.array(node) is None
        assert numpy_nodes.dtype(node) is None
        assert numpy_nodes.scalar(node) is None
        assert numpy_nodes.raw_bytes(node) is node
    assert numpy_nodes.scalar(PickleCall(scalar, (None, b"ab"))) == ("scalar", b"ab")
