from __future__ import annotations

import math
import struct

import pytest

from rpcinspect.rpc.dtypes import DTYPES, STORAGE_CLASSES, element_value
from tests.rpc.torch_tables import import_torch

FLOATS = [
    "float16",
    "bfloat16",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]


def bits(value: object) -> bytes:
    """Of a float; all NaNs are one."""
    assert isinstance(value, float)
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


@pytest.mark.parametrize("name", FLOATS)
def test_every_code_of_the_small_floats_is_what_torch_makes_of_it(name: str) -> None:
    torch = import_torch()
    dtype = DTYPES[name]
    count = 1 << 8 * dtype.item_bytes
    raw = b"".join(code.to_bytes(dtype.item_bytes, "little") for code in range(count))
    truth = torch.frombuffer(bytearray(raw), dtype=getattr(torch, name)).to(torch.float64).tolist()
    for code in range(count):
        element = raw[code * dtype.item_bytes : (code + 1) * dtype.item_bytes]
        assert bits(element_value(dtype, element)) == bits(truth[code]), hex(code)


def test_float4_is_a_pair_per_byte() -> None:
    # e2m1: 0 0.5 1 1.5 2 3 4 6, then the same with the sign set
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    values = magnitudes + [-m for m in magnitudes]
    dtype = DTYPES["float4_e2m1fn_x2"]
    for low in range(16):
        for high in range(16):
            pair = element_value(dtype, bytes([high << 4 | low]))
            assert isinstance(pair, tuple)
            assert [bits(p) for p in pair] == [bits(values[low]), bits(values[high])]


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("float32", "00 00 c0 3f", 1.5),
        ("float64", "00 00 00 00 00 00 00 c0", -2.0),
        ("complex64", "00 00 80 3f 00 00 00 c0", 1 - 2j),
        ("complex32", "00 3c 00 c0", 1 - 2j),
        ("complex128", "00 00 00 00 00 00 f0 3f" + "00 00 00 00 00 00 00 c0", 1 - 2j),
        ("bool", "01", True),
        ("bool", "00", False),
        ("int8", "ff", -1),
        ("uint8", "ff", 255),
        ("int64", "fe ff ff ff ff ff ff ff", -2),
        ("uint64", "fe ff ff ff ff ff ff ff", (1 << 64) - 2),
        ("qint8", "ff", -1),
        ("quint8", "ff", 255),
        ("qint32", "ff ff ff ff", -1),
    ],
)
def test_one_element(name: str, raw: str, value: object) -> None:
    found = element_value(DTYPES[name], bytes.fromhex(raw))
    assert found == value
    assert type(found) is type(value)


def test_table_knows_every_dtype_of_torch() -> None:
    torch = import_torch()
    theirs = {str(d).removeprefix("torch.") for d in vars(torch).values() if isinstance(d, torch.dtype)}
    assert theirs - {"bit"} <= set(DTYPES)
    for name in theirs & set(DTYPES):
        assert getattr(torch, name).itemsize == DTYPES[name].item_bytes, name
    assert len(STORAGE_CLASSES) == len(DTYPES)


def test_safetensors_names_are_names_of_safetensors() -> None:
    import_torch()
    from safetensors.torch import _TYPES

    for dtype in DTYPES.values():
        if dtype.safetensors is not None:
            assert str(_TYPES[dtype.safetensors]) == f"torch.{dtype.name}"
