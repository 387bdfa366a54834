"""libnop values: bytes <-> plain values, by a schema that the caller (`control.py`) has.

In: bytes that hold values from an offset on. Out: ints, bytes and text, and the heads of what holds others.
May assume nothing about the bytes. Mirrors libnop's `include/nop/base/encoding_byte.h` and the encodings
beside it.

    00..7f c0..ff   int 0..127, -64..-1     80 81 82 83     u8 u16 u32 u64    84 85 86 87   i8 i16 i32 i64
    88 89           f32 f64                 b8 I V          variant           b9 N V...     structure
    ba N V...       array                   bb N (K V)...   map               bc N bytes    binary
    bd N bytes      string                  be              nil

I and N are ints themselves. All data is little-endian. The writers take the shortest form, as libnop does;
only whether an int is signed is not in the value, but in the schema.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import DEFAULT_LIMITS, Limits

LAYER = "tensorpipe"

_VARIANT, _STRUCTURE, _ARRAY, _MAP, _BINARY, _STRING, _NIL = 0xB8, 0xB9, 0xBA, 0xBB, 0xBC, 0xBD, 0xBE


class NopReader:
    """A place in bytes. Each method reads one thing there and moves on, or raises."""

    __slots__ = ("_data", "_end", "_items", "_limits", "offset")

    def __init__(self, data: bytes, offset: int = 0, limits: Limits = DEFAULT_LIMITS) -> None:
        self._data = data
        self._end = len(data)
        self._limits = limits
        self._items = 0
        self.offset = offset

    def finish(self) -> None:
        """Raises `DecodeError` if bytes are left."""
        if self.offset != self._end:
            raise DecodeError(
                LAYER, f"{self._end - self.offset} bytes after the end of the value", self.offset
            )

    def integer(self) -> int:
        """An int of any form."""
        at = self.offset
        prefix = self._byte("an int")
        if prefix < 0x80:
            return prefix
        if prefix >= 0xC0:
            return prefix - 256
        if prefix > 0x87:
            self._unexpected("an int", prefix, at)
        return int.from_bytes(self._take(1 << (prefix & 3)), "little", signed=prefix >= 0x84)

    def size(self) -> int:
        """An int that is not negative: a length, a count, an id."""
        at = self.offset
        if at < self._end and (number := self._data[at]) < 0x80:  # nearly always
            self.offset = at + 1
            return number
        number = self.integer()
        if number < 0:
            raise DecodeError(LAYER, f"{number} where a size or an id is expected", at)
        return number

    def string(self) -> bytes:
        self._expect(_STRING, "a string")
        return self._take(self.size())

    def text(self) -> str:
        """A string as UTF-8 with `surrogateescape`, which `write_text` turns back into the same bytes."""
        return self.string().decode("utf-8", "surrogateescape")

    def u64s(self) -> tuple[int, ...]:
        """A binary that holds a vector of u64."""
        at = self.offset
        self._expect(_BINARY, "a binary")
        packed = self._take(self.size())
        if len(packed) % 8:
            raise DecodeError(LAYER, f"integers of 8 bytes each in {len(packed):,} bytes", at)
        return struct.unpack(f"<{len(packed) // 8}Q", packed)

    def structure(self, members: int) -> None:
        """The head of a structure that must have this many members."""
        at = self.offset
        self._expect(_STRUCTURE, "a structure")
        count = self.size()
        if count != members:
            raise DecodeError(LAYER, f"a structure of {count} members instead of {members}", at)

    def array(self) -> int:
        """The head of an array: the number of values that follow."""
        self._expect(_ARRAY, "an array")
        return self._count(1)

    def map(self) -> int:
        """The head of a map: the number of pairs that follow."""
        self._expect(_MAP, "a map")
        return self._count(2)

    def variant(self) -> int:
        """The head of a variant: the index of the alternative that follows."""
        self._expect(_VARIANT, "a variant")
        return self.integer()

    def skip(self, written: bytes) -> bool:
        """Reads exactly these bytes if they are next; returns whether they were."""
        if self._data.startswith(written, self.offset):
            self.offset += len(written)
            return True
        return False

    def at_variant(self) -> bool:
        """Whether a variant is next; nothing is read."""
        return self.offset < self._end and self._data[self.offset] == _VARIANT

    def nil(self) -> bool:
        """Whether nil is next; only then it is read."""
        if self.offset < self._end and self._data[self.offset] == _NIL:
            self.offset += 1
            return True
        return False

    def _byte(self, wanted: str) -> int:
        if self.offset >= self._end:
            self._ended(wanted)
        self.offset += 1
        return self._data[self.offset - 1]

    def _take(self, length: int) -> bytes:
        start = self.offset
        if length > self._end - start:
            raise DecodeError(LAYER, f"{length:,} bytes announced, {self._end - start:,} are there", start)
        self.offset = start + length
        return self._data[start : self.offset]

    def _count(self, least: int) -> int:
        """A number of items, each of which takes at least so many bytes."""
        at = self.offset
        count = self.size()
        self._items += count
        if self._items > self._limits.nop_items:
            raise LimitExceeded(LAYER, "nop_items", self._limits.nop_items, self._items, at)
        if count * least > self._end - self.offset:
            raise DecodeError(LAYER, f"{count:,} items announced, {self._end - self.offset:,} bytes left", at)
        return count

    def _expect(self, prefix: int, wanted: str) -> None:
        at = self.offset
        if at >= self._end:
            self._ended(wanted)
        if self._data[at] != prefix:
            self._unexpected(wanted, self._data[at], at)
        self.offset = at + 1

    def _unexpected(self, wanted: str, prefix: int, at: int) -> NoReturn:
        raise DecodeError(LAYER, f"expected {wanted}, found prefix 0x{prefix:02x}", at)

    def _ended(self, wanted: str) -> NoReturn:
        raise DecodeError(LAYER, f"the bytes end where {wanted} must be", self._end)


def write_int(value: int, *, signed: bool = False) -> bytes:
    """The shortest form of an int whose type upstream is signed or not; negative ones are signed anyway."""
    if -64 <= value < 128:
        return (value & 0xFF).to_bytes(1, "little")
    signed = signed or value < 0
    bits = value.bit_length() + signed if value >= 0 else (~value).bit_length() + 1
    for code, size in enumerate((1, 2, 4, 8)):
        if bits <= 8 * size:
            prefix = (0x84 if signed else 0x80) + code
            return bytes((prefix,)) + value.to_bytes(size, "little", signed=signed)
    raise ValueError(f"{value} needs more than 64 bits")


def write_string(data: bytes) -> bytes:
    return b"\xbd" + write_int(len(data)) + data


def write_text(text: str) -> bytes:
    return write_string(text.encode("utf-8", "surrogateescape"))


def write_u64s(numbers: tuple[int, ...]) -> bytes:
    return b"\xbc" + write_int(8 * len(numbers)) + struct.pack(f"<{len(numbers)}Q", *numbers)


def write_structure(*members: bytes) -> bytes:
    """A structure of values that are written already."""
    return b"\xb9" + write_int(len(members)) + b"".join(members)


def write_array(items: list[bytes]) -> bytes:
    """An array of values that are written already."""
    return b"\xba" + write_int(len(items)) + b"".join(items)


def write_map(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """A map of keys and values that are written already."""
    return b"\xbb" + write_int(len(pairs)) + b"".join([key + value for key, value in pairs])


def write_variant(index: int, value: bytes) -> bytes:
    """A variant of a value that is written already."""
    return b"\xb8" + write_int(index, signed=True) + value
