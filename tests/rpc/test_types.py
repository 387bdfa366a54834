from __future__ import annotations

import pytest

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.types import GloballyUniqueId, as_bool, as_int, describe, pack_id, unpack_id


@pytest.mark.parametrize(
    ("worker", "counter", "packed"),
    [
        (0, 0, 0),
        (1, 0, 0x0001_0000_0000_0000),
        (1, 7, 0x0001_0000_0000_0007),
        (3, (1 << 48) - 1, 0x0003_FFFF_FFFF_FFFF),
        (0x8000, 1, 0x0001 - (1 << 63)),  # the sign bit is the highest bit of the worker id
    ],
)
def test_ids_hold_their_creator_in_the_upper_16_bits(worker: int, counter: int, packed: int) -> None:
    assert pack_id(worker, counter) == packed
    assert unpack_id(packed) == (worker, counter)


def test_minus_one_is_no_id() -> None:
    assert unpack_id(-1) == (0xFFFF, (1 << 48) - 1)


def test_unique_id_travels_as_a_pair() -> None:
    assert GloballyUniqueId.from_value((1, 2)) == GloballyUniqueId(1, 2)
    assert GloballyUniqueId(1, 2).to_value() == (1, 2)


@pytest.mark.parametrize(
    "value",
    [None, 1, (1,), (1, 2, 3), [1, 2], (1, "2"), (True, 1), (1, 1 << 63), (1 << 15, 1), (-65536, 7)],
    ids=repr,
)
def test_what_is_no_unique_id(value: object) -> None:
    with pytest.raises(DecodeError, match="a fork: expected a pair of a 16-bit and a 64-bit int"):
        GloballyUniqueId.from_value(value, "a fork")


@pytest.mark.parametrize("value", [True, None, 1.0, "1", 1 << 63, -(1 << 63) - 1], ids=repr)
def test_what_is_no_int(value: object) -> None:
    with pytest.raises(DecodeError):
        as_int(value, "number")


def test_int_and_bool_are_told_apart() -> None:
    assert as_int(-(1 << 63), "number") == -(1 << 63)
    assert as_bool(False, "flag") is False
    with pytest.raises(DecodeError):
        as_bool(0, "flag")


def test_describe_shows_no_content() -> None:
    assert describe("secret") == "str of length 6"
    assert describe(None) == "None"
    assert describe(1.5) == "float"
