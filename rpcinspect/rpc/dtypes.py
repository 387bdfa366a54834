"""Element types: torch's name, the storage class that stands on the wire, the size, and single elements as
Python values.

In: names and raw little-endian element bits. Out: `DType` rows, and exact Python numbers: every float type
here fits a Python float without rounding, by own bit arithmetic for the types that Python lacks.
Mirrors c10/core/ScalarType.h and the headers of c10/util that define the small float types.
"""

from __future__ import annotations

import math
import struct

from msgspec import Struct


class DType(Struct, frozen=True):
    """An element type."""

    name: str
    """As torch prints it, without `torch.`."""
    storage_class: str
    """As in persistent ids, without `torch.`: `FloatStorage`."""
    item_bytes: int
    """Bytes of one element (of one packed byte, where several elements share it)."""
    kind: str
    """`int`, `uint`, `bool`, `float`, `complex`, `bits`, or `quantized`."""
    safetensors: str | None
    """The name in safetensors files, None where that format has none."""
    values_per_byte: int = 1
    """Elements of the shape that share a byte, lowest bits first. float4_e2m1fn_x2 has 1: its shape counts
    bytes."""


class SmallFloat(Struct, frozen=True):
    """The layout of a float of one byte or less: sign, exponent, mantissa, from the highest bit down."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    nan_code: int | None
    """The code below the sign that is NaN; None: no NaN at all. For `fnuz` the one NaN is minus zero's
    code."""
    fnuz: bool = False


def small_float(layout: SmallFloat, code: int) -> float:
    """The value of one code, exactly. No type in the table has infinities."""
    magnitude_bits = layout.exponent_bits + layout.mantissa_bits
    sign, magnitude = code >> magnitude_bits, code & ((1 << magnitude_bits) - 1)
    if layout.fnuz:
        if sign and not magnitude:
            return math.nan
    elif magnitude == layout.nan_code:
        return math.nan
    exponent = magnitude >> layout.mantissa_bits
    mantissa = magnitude & ((1 << layout.mantissa_bits) - 1)
    if exponent:
        mantissa |= 1 << layout.mantissa_bits
    else:
        exponent = 1
    value = math.ldexp(mantissa, exponent - layout.bias - layout.mantissa_bits)
    return -value if sign else value


def element_value(dtype: DType, raw: bytes) -> object:
    """One element as bool, int, float or complex; float4_e2m1fn_x2 as the pair that its byte holds.

    `raw` is the element, little-endian, `item_bytes` long. Quantized elements come as their integers.
    """
    name = dtype.name
    if name in _STRUCT:
        return struct.unpack(_STRUCT[name], raw)[0]
    if name in _COMPLEX_STRUCT:
        real, imag = struct.unpack(_COMPLEX_STRUCT[name], raw)
        return complex(real, imag)
    if name == "bfloat16":
        return struct.unpack("<f", b"\0\0" + raw)[0]
    if name == "float8_e5m2":
        return struct.unpack("<e", b"\0" + raw)[0]
    if name in SMALL_FLOATS:
        return small_float(SMALL_FLOATS[name], raw[0])
    if name == "float8_e8m0fnu":
        return math.nan if raw[0] == 0xFF else math.ldexp(1.0, raw[0] - 127)
    if name == "float4_e2m1fn_x2":
        return (small_float(_FLOAT4, raw[0] & 15), small_float(_FLOAT4, raw[0] >> 4))
    if dtype.kind == "bool":
        return raw != b"\0"
    return int.from_bytes(raw, "little", signed=dtype.kind == "int" or name in ("qint8", "qint32"))


_STRUCT = {"float16": "<e", "float32": "<f", "float64": "<d"}
_COMPLEX_STRUCT = {"complex32": "<ee", "complex64": "<ff", "complex128": "<dd"}

SMALL_FLOATS: dict[str, SmallFloat] = {
    "float8_e4m3fn": SmallFloat(4, 3, 7, 0x7F),
    "float8_e4m3fnuz": SmallFloat(4, 3, 8, None, fnuz=True),
    "float8_e5m2fnuz": SmallFloat(5, 2, 16, None, fnuz=True),
}
_FLOAT4 = SmallFloat(2, 1, 1, None)

_ROWS = (
    DType("uint8", "ByteStorage", 1, "uint", "U8"),
    DType("int8", "CharStorage", 1, "int", "I8"),
    DType("int16", "ShortStorage", 2, "int", "I16"),
    DType("int32", "IntStorage", 4, "int", "I32"),
    DType("int64", "LongStorage", 8, "int", "I64"),
    DType("float16", "HalfStorage", 2, "float", "F16"),
    DType("float32", "FloatStorage", 4, "float", "F32"),
    DType("float64", "DoubleStorage", 8, "float", "F64"),
    DType("complex32", "ComplexHalfStorage", 4, "complex", None),
    DType(
        "complex64", "ComplexFloatStorage", 8, "complex", None
    ),  # C64 is too new: older readers refuse the file
    DType("complex128", "ComplexDoubleStorage", 16, "complex", None),
    DType("bool", "BoolStorage", 1, "bool", "BOOL"),
    DType("qint8", "QInt8Storage", 1, "quantized", None),
    DType("quint8", "QUInt8Storage", 1, "quantized", None),
    DType("qint32", "QInt32Storage", 4, "quantized", None),
    DType("bfloat16", "BFloat16Storage", 2, "float", "BF16"),
    DType("quint4x2", "QUInt4x2Storage", 1, "quantized", None, values_per_byte=2),
    DType("quint2x4", "QUInt2x4Storage", 1, "quantized", None, values_per_byte=4),
    DType("bits1x8", "Bits1x8Storage", 1, "bits", None),
    DType("bits2x4", "Bits2x4Storage", 1, "bits", None),
    DType("bits4x2", "Bits4x2Storage", 1, "bits", None),
    DType("bits8", "Bits8Storage", 1, "bits", None),
    DType("bits16", "Bits16Storage", 2, "bits", None),
    DType("float8_e5m2", "Float8_e5m2Storage", 1, "float", "F8_E5M2"),
    DType("float8_e4m3fn", "Float8_e4m3fnStorage", 1, "float", "F8_E4M3"),
    DType("float8_e5m2fnuz", "Float8_e5m2fnuzStorage", 1, "float", None),
    DType("float8_e4m3fnuz", "Float8_e4m3fnuzStorage", 1, "float", None),
    DType("float8_e8m0fnu", "Float8_e8m0fnuStorage", 1, "float", None),
    DType("float4_e2m1fn_x2", "Float4_e2m1fn_x2Storage", 1, "float", None),
    DType("uint16", "UInt16Storage", 2, "uint", "U16"),
    DType("uint32", "UInt32Storage", 4, "uint", "U32"),
    DType("uint64", "UInt64Storage", 8, "uint", "U64"),
    # one byte an element in every release so far
    *(DType(f"uint{bits}", f"UInt{bits}Storage", 1, "uint", None) for bits in range(1, 8)),
    *(DType(f"int{bits}", f"Int{bits}Storage", 1, "int", None) for bits in range(1, 8)),
)

DTYPES: dict[str, DType] = {row.name: row for row in _ROWS}
STORAGE_CLASSES: dict[str, DType] = {row.storage_class: row for row in _ROWS}
