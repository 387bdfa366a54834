"""libnop values: each form by hand, whole, cut and damaged, and back."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import Limits
from rpcinspect.tensorpipe.nop import (
    NopReader,
    write_array,
    write_int,
    write_map,
    write_string,
    write_structure,
    write_text,
    write_u64s,
    write_variant,
)
from tests.thorough import examples

INTEGERS = [
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
    ("857fff", -129),  # i16
    ("8600000080", -(1 << 31)),  # i32
    ("870000000000000080", -(1 << 63)),  # i64
]
SIGNED = [
    ("858000", 128),  # i16: 128 does not fit i8
    ("850e01", 270),  # a size in PyTorch 1.8
    ("85ef00", 239),
    ("8600800000", 1 << 15),
    ("870000008000000000", 1 << 31),
]
Read = Callable[[NopReader], object]


def pair(reader: NopReader) -> object:
    """A map of one int to one."""
    return reader.map(), reader.integer(), reader.integer()


OTHERS: list[tuple[str, Read, object, bytes]] = [
    ("bd00", NopReader.string, b"", write_string(b"")),
    ("bd02 7576", NopReader.string, b"uv", write_string(b"uv")),
    ("bd01 ff", NopReader.text, "\udcff", write_text("\udcff")),  # not text
    ("bc08 0100000000000000", NopReader.u64s, (1,), write_u64s((1,))),
    ("ba00", NopReader.array, 0, write_array([])),
    ("ba01 05", lambda r: (r.array(), r.integer()), (1, 5), write_array([write_int(5)])),
    (
        "b902 bd03 637075 00",
        lambda r: (r.structure(2), r.text(), r.integer()),
        (None, "cpu", 0),
        write_structure(write_text("cpu"), write_int(0)),
    ),  # Device("cpu", 0)
    ("bb01 01 00", pair, (1, 1, 0), write_map([(write_int(1), write_int(0))])),
    (
        "b801 b901 01",
        lambda r: (r.variant(), r.structure(1), r.integer()),
        (1, None, 1),
        write_variant(1, write_structure(write_int(1))),
    ),  # RequestedConnection(1)
    ("b8ff be", lambda r: (r.variant(), r.nil()), (-1, True), write_variant(-1, b"\xbe")),  # an empty variant
]


@pytest.mark.parametrize(("data", "value"), [*INTEGERS, *SIGNED], ids=[data for data, _ in INTEGERS + SIGNED])
def test_integers(data: str, value: int) -> None:
    check(data, NopReader.integer, value, write_int(value, signed=(data, value) in SIGNED))


@pytest.mark.parametrize(("data", "read", "value", "written"), OTHERS, ids=[data for data, *_ in OTHERS])
def test_forms(data: str, read: Read, value: object, written: bytes) -> None:
    check(data, read, value, written)


def check(data: str, read: Read, value: object, written: bytes) -> None:
    """Reads it whole, among other bytes, cut anywhere and with a byte too many."""
    raw = bytes.fromhex(data)
    assert written == raw
    reader = NopReader(b"\x01" + raw + b"\x02", 1)
    assert read(reader) == value
    assert reader.offset == 1 + len(raw)
    with pytest.raises(DecodeError, match="1 bytes after the end"):
        reader.finish()
    for cut in range(len(raw)):
        if data != "b8ff be" or cut < 2:  # nil may be left out of anything
            with pytest.raises(DecodeError):
                read(NopReader(raw[:cut]))


@pytest.mark.parametrize("prefix", [*range(0x88, 0xC0)])
def test_other_prefixes_are_no_ints(prefix: int) -> None:
    with pytest.raises(DecodeError, match="prefix"):
        NopReader(bytes([prefix]) + bytes(20)).integer()


def test_longer_forms_are_read() -> None:
    """libnop reads them for any type that is wide enough, though it never writes them."""
    assert NopReader(bytes.fromhex("830500000000000000")).integer() == 5


def test_an_int_over_64_bits_is_refused() -> None:
    for value in (1 << 64, -(1 << 63) - 1):
        with pytest.raises(ValueError, match="more than 64 bits"):
            write_int(value)
    with pytest.raises(ValueError, match="more than 64 bits"):
        write_int(1 << 63, signed=True)


def test_items_are_limited() -> None:
    million = write_int(1_000_000)
    with pytest.raises(LimitExceeded, match="nop_items"):
        NopReader(b"\xba" + million + bytes(1_000_000), limits=Limits(nop_items=999_999)).array()
    rows = (b"\xba\x0a" + bytes(10)) * 10  # 100 items in all
    for allowed in (100, 99):
        reader = NopReader(rows, limits=Limits(nop_items=allowed))
        for row in range(10):
            if row == 9 and allowed == 99:
                with pytest.raises(LimitExceeded):
                    reader.array()
            else:
                assert [reader.integer() for _ in range(reader.array())] == [0] * 10


@pytest.mark.parametrize(
    ("prefix", "read"),
    [
        ("ba", NopReader.array),
        ("bb", NopReader.map),
        ("bc", NopReader.u64s),
        ("bd", NopReader.string),
        ("b9", lambda reader: reader.structure(2)),
    ],
)
def test_counts_are_checked_against_what_is_there(prefix: str, read: Read) -> None:
    for count in ("05", "8200000008", "83ffffffffffffffff", "ff"):
        with pytest.raises(DecodeError):
            read(NopReader(bytes.fromhex(prefix + count) + b"\x00"))


def test_several_values() -> None:
    reader = NopReader(bytes.fromhex("b902 bd01 61 bc10 0100000000000000 ffffffffffffffff"))
    reader.structure(2)
    assert reader.text() == "a"
    assert reader.u64s() == (1, (1 << 64) - 1)
    reader.finish()


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
def test_errors_tell_where(data: str, read: Read) -> None:
    with pytest.raises(DecodeError) as caught:
        read(NopReader(b"\x00" + bytes.fromhex(data), 1))
    assert caught.value.layer == "tensorpipe"
    assert caught.value.offset == 1


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.booleans())
def test_the_shortest_form_is_written(value: int, signed: bool) -> None:
    widths = zip(
        ("b", "h", "i", "q") if signed or value < 0 else ("B", "H", "I", "Q"), (1, 2, 4, 8), strict=True
    )
    fitting = [1 + width for form, width in widths if fits(form, value)]
    written = write_int(value, signed=signed)
    assert len(written) == (1 if -64 <= value <= 127 else fitting[0])
    assert NopReader(written).integer() == value


def fits(form: str, value: int) -> bool:
    """Whether the standard library would pack the value so."""
    try:
        struct.pack("<" + form, value)
    except struct.error:
        return False
    return True


READS: list[Read] = [
    *(NopReader.integer, NopReader.size, NopReader.text, NopReader.u64s, NopReader.array, NopReader.map),
    *(NopReader.variant, lambda reader: reader.structure(2)),
]


@settings(max_examples=examples(300))
@given(
    st.binary(max_size=60) | st.lists(st.sampled_from(range(0xB5, 0xC0)), max_size=40).map(bytes),
    st.lists(st.sampled_from(READS), min_size=1, max_size=8),
)
def test_hostile_bytes(data: bytes, reads: list[Read]) -> None:
    reader = NopReader(data)
    refusal: DecodeError | None = None
    try:
        for read in reads:
            read(reader)
    except DecodeError as error:
        refusal = error
    if refusal is not None:
        assert refusal.layer == "tensorpipe"
        assert refusal.offset is not None
        assert 0 <= refusal.offset <= len(data)
