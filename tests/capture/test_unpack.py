"""Compressed input by itself; whole inputs are in test_source.py."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Iterator

import pytest
import zstandard

from rpcinspect.capture.unpack import DECOMPRESSORS, compression_of
from rpcinspect.limits import Unpacking
from tests.fuzz.bounds import bounded

NOISE = random.Random(3).randbytes(200_000)


def chunks(data: bytes, size: int = 1 << 16) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x5a\x2a\x4d\x18", "zstd"),
        (b"\x60\x2a\x4d\x18", None),
        (b"\xd4\xc3\xb2\xa1", None),
        (b"", None),
    ],
)
def test_it_is_told_by_its_first_bytes(head: bytes, name: str | None) -> None:
    assert compression_of(head) == name


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_pieces_are_small_however_much_is_packed(name: str, pack) -> None:  # type: ignore[no-untyped-def]
    packed = pack(NOISE) + pack(bytes(1 << 28)) + pack(NOISE)
    with bounded(20, 60):
        total, largest = 0, 0
        for piece in DECOMPRESSORS[name](chunks(packed), pytest.fail):
            total += len(piece)
            largest = max(largest, len(piece))
    assert total == 2 * len(NOISE) + (1 << 28)
    assert largest <= 1 << 24


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_a_hundred_thousand_empty_frames(name: str) -> None:
    pack = gzip.compress if name == "gzip" else zstandard.compress
    packed = pack(b"") * 100_000 + pack(b"end")
    with bounded(20, 60):
        assert b"".join(DECOMPRESSORS[name](chunks(packed), pytest.fail)) == b"end"


def test_damage_in_gzip_costs_nothing_before_it() -> None:
    whole = b"".join(b"line %d of many\n" % number for number in range(20_000))
    packed = bytearray(gzip.compress(whole))
    damage = len(packed) // 2
    packed[damage : damage + 64] = b"\xff" * 64
    before = zlib.decompressobj(31).decompress(packed[:damage])
    problems: list[str] = []
    got = b"".join(DECOMPRESSORS["gzip"](chunks(bytes(packed)), problems.append))
    assert got.startswith(before)
    assert len(before) > len(whole) // 3
    assert len(problems) == 1


def test_a_frame_that_asks_for_a_huge_window_is_told_and_what_was_before_is_kept() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    huge = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = zstandard.compress(NOISE) + huge.compress(NOISE) + huge.flush()
    told: list[str] = []
    with bounded(20, 60):
        assert b"".join(DECOMPRESSORS["zstd"](chunks(packed), told.append)) == NOISE
    assert len(told) == 1
    assert "damaged" in told[0]


@pytest.mark.parametrize(
    ("unpacking", "packed", "allowed"),
    [
        (Unpacking(), 0, 10**9),
        (Unpacking(), 5 * 10**6, 10**9),
        (Unpacking(), 10**7, 2 * 10**9),
        (Unpacking(), 10**12, 10**11),
        (Unpacking(bytes=500), 10**12, 500),
        (Unpacking(bytes=5 * 10**12, ratio=None), 1, 5 * 10**12),
        (Unpacking(bytes=None, ratio=None), 1, None),
    ],
)
def test_what_is_allowed(unpacking: Unpacking, packed: int, allowed: int | None) -> None:
    assert unpacking.allowed(packed) == allowed
