"""libnop values: each form by hand, whole, cut and damaged, and back."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import Limits
from rpcinspect.wire.nop import (
    Array,
    Binary,
    Float,
    Map,
    NopReader,
    NopValue,
    Signed,
    Structure,
    Variant,
    read_nop,
    read_nop_prefix,
    write_int,
    write_nop,
    write_text,
    write_u64s,
)

VECTORS = [
    ("00", 0),
    ("7f", 127),
    ("ff", -1),
    ("c0", -64),
    ("8080", 128),  # u8
    ("80bc", 188),
    ("80ff", 255),
    ("810001", 256),  # u16
    ("810a01", 266),
    ("8200000100", 1 << 16),  # u32
    ("8200000004", 64 << 20),
    ("830000000001000000", 1 << 32),  # u64
    ("83ffffffffffffffff", (1 << 64) - 1),
    ("84bf", -65),  # i8
    ("8480", -128),
    ("858000", Signed(128)),  # i16: 128 does not fit i8
    ("850e01", Signed(270)),  # a size in PyTorch 1.8
    ("85ef00", Signed(239)),
    ("857fff", -129),
    ("8600000080", -(1 << 31)),  # i32
    ("8600800000", Signed(1 << 15)),
    ("870000000000000080", -(1 << 63)),  # i64
    ("870000008000000000", Signed(1 << 31)),
    ("880000803f", Float(1.0, 32)),
    ("89000000000000f0bf", Float(-1.0, 64)),
    ("be", None),
    ("bd00", b""),
    ("bd02 7576", b"uv"),
    ("bd01 ff", b"\xff"),  # not text
    ("bc08 0100000000000000", Binary(bytes([1, 0, 0, 0, 0, 0, 0, 0]))),
    ("ba00", Array(())),
    ("ba02 05 be", Array((5, None))),
    ("b902 bd03 637075 00", Structure((b"cpu", 0))),  # Device("cpu", 0)
    ("bb01 01 00", Map(((1, 0),))),
    ("bb02 00 00 00 01", Map(((0, 0), (0, 1)))),  # order and doubles are kept
    ("b801 b901 01", Variant(1, Structure((1,)))),  # RequestedConnection(1)
    ("b8ff be", Variant(-1, None)),  # an empty variant
]


@pytest.mark.parametrize(("data", "value"), VECTORS, ids=[data for data, _ in VECTORS])
def test_forms(data: str, value: NopValue) -> None:
    raw = bytes.fromhex(data)
    assert read_nop(raw) == value
    assert write_nop(value) == raw
    assert write_nop(read_nop(raw)) == raw
    assert read_nop_prefix(b"\x01" + raw + b"\x02", 1) == (value, 1 + len(raw))
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            read_nop(raw[:cut])
    with pytest.raises(DecodeError, match="1 bytes after the end"):
        read_nop(raw + b"\x00")


@pytest.mark.parametrize("prefix", [*range(0x8A, 0xB8), 0xBF])
def test_other_prefixes_are_refused(prefix: int) -> None:
    with pytest.raises(DecodeError, match="prefix"):
        read_nop(bytes([prefix]) + bytes(20))


def test_longer_forms_are_read() -> None:
    """libnop reads them for any type that is wide enough, though it never writes them."""
    assert read_nop(bytes.fromhex("830500000000000000")) == 5


def test_signedness_survives_and_does_not_change_the_value() -> None:
    value = read_nop(bytes.fromhex("850e01"))
    assert value == 270
    assert isinstance(value, Signed)
    assert write_int(270) == bytes.fromhex("810e01")
    assert write_int(270, signed=True) == bytes.fromhex("850e01")


def test_an_int_over_64_bits_is_refused() -> None:
    for value in (1 << 64, -(1 << 63) - 1):
        with pytest.raises(ValueError, match="more than 64 bits"):
            write_nop(value)
    with pytest.raises(ValueError, match="more than 64 bits"):
        write_int(1 << 63, signed=True)


def test_depth_is_limited() -> None:
    deep = b"\xb9\x01" * 15 + b"\xb9\x00"  # 16 structures in each other
    assert write_nop(read_nop(deep)) == deep
    with pytest.raises(LimitExceeded, match="17 is over the limit nop_depth = 16"):
        read_nop(b"\xb9\x01" + deep)
    with pytest.raises(LimitExceeded):
        read_nop(b"\xba\x01" * 100_000)


def test_depth_counts_only_what_is_open() -> None:
    flat = b"\xba\x80\xc8" + b"\xb9\x00" * 200  # 200 structures beside each other
    assert len(read_nop(flat).items) == 200  # type: ignore[union-attr]


def test_items_are_limited() -> None:
    million = write_int(1_000_000)
    with pytest.raises(LimitExceeded, match="nop_items"):
        read_nop(b"\xba" + million + bytes(1_000_000), Limits(nop_items=999_999))
    rows = b"\xba\x0a" + (b"\xba\x0a" + bytes(10)) * 10  # 110 items in all
    assert write_nop(read_nop(rows, Limits(nop_items=110))) == rows
    with pytest.raises(LimitExceeded):
        read_nop(rows, Limits(nop_items=109))


@pytest.mark.parametrize("prefix", ["ba", "bb", "b9", "bc", "bd"])
def test_counts_are_checked_against_what_is_there(prefix: str) -> None:
    for count in ("05", "8200000008", "83ffffffffffffffff", "ff"):
        with pytest.raises(DecodeError):
            read_nop(bytes.fromhex(prefix + count) + b"\x00")


def test_reader_with_a_schema() -> None:
    reader = NopReader(bytes.fromhex("b902 bd01 61 bc10 0100000000000000 ffffffffffffffff"))
    reader.structure(2)
    assert reader.text() == "a"
    assert reader.u64s() == (1, (1 << 64) - 1)
    reader.finish()
    assert write_text("a") + write_u64s((1, (1 << 64) - 1)) == bytes.fromhex(
        "bd01 61 bc10 0100000000000000 ffffffffffffffff"
    )


@pytest.mark.parametrize(
    ("data", "read"),
    [
        ("b901", lambda reader: reader.structure(2)),  # another number of members
        ("ff", lambda reader: reader.size()),  # a negative size
        ("bd00", lambda reader: reader.array()),
        ("ba00", lambda reader: reader.string()),
        ("be", lambda reader: reader.integer()),
        ("bc0100", lambda reader: reader.u64s()),  # one byte is no u64
        ("", lambda reader: reader.map()),
        ("", lambda reader: reader.integer()),
    ],
)
def test_schema_errors_tell_where(data: str, read: object) -> None:
    with pytest.raises(DecodeError) as caught:
        read(NopReader(b"\x00" + bytes.fromhex(data), 1))  # type: ignore[operator]
    assert caught.value.layer == "tensorpipe"
    assert caught.value.offset == 1


ints = st.integers(-(1 << 63), (1 << 64) - 1) | st.integers(-(1 << 63), (1 << 63) - 1).map(Signed)
leaves = (
    ints
    | st.binary(max_size=20)
    | st.none()
    | st.binary(max_size=20).map(Binary)
    | st.floats(allow_nan=False).map(Float)
    | st.floats(width=32, allow_nan=False).map(lambda number: Float(number, 32))
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: Array(tuple(items)))
        | st.lists(inner, max_size=4).map(lambda items: Structure(tuple(items)))
        | st.lists(st.tuples(inner, inner), max_size=3).map(lambda pairs: Map(tuple(pairs)))
        | st.builds(Variant, st.integers(-1, 200) | st.integers(-(1 << 63), (1 << 64) - 1), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(values)
def test_what_is_written_is_read(value: NopValue) -> None:
    raw = write_nop(value)
    assert read_nop(raw, Limits(nop_depth=30)) == value
    assert write_nop(read_nop(raw, Limits(nop_depth=30))) == raw


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.booleans())
def test_the_shortest_form_is_written(value: int, signed: bool) -> None:
    widths = zip(
        ("b", "h", "i", "q") if signed or value < 0 else ("B", "H", "I", "Q"), (1, 2, 4, 8), strict=True
    )
    fitting = [1 + width for form, width in widths if fits(form, value)]
    assert len(write_int(value, signed=signed)) == (1 if -64 <= value <= 127 else fitting[0])


def fits(form: str, value: int) -> bool:
    """Whether the standard library would pack the value so."""
    try:
        struct.pack("<" + form, value)
    except struct.error:
        return False
    return True


def test_nan_survives() -> None:
    value = read_nop(bytes.fromhex("89000000000000f87f"))
    assert isinstance(value, Float)
    assert math.isnan(value.value)
    assert write_nop(value) == bytes.fromhex("89000000000000f87f")


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.lists(st.sampled_from(range(0xB5, 0xC0)), max_size=40).map(bytes))
def test_hostile_bytes(data: bytes) -> None:
    refusal: DecodeError | None = None
    try:
        read_nop(data)
    except DecodeError as error:
        refusal = error
    if refusal is not None:
        assert refusal.layer == "tensorpipe"
        assert refusal.offset is not None
        assert 0 <= refusal.offset <= len(data)
