"""The error tree: what can be caught as what, and what is said."""

from __future__ import annotations

import pickle

import pytest
from msgspec import structs

from rpcinspect.errors import (
    CaptureError,
    DecodeError,
    LimitExceeded,
    Location,
    OutputError,
    Problem,
    RpcInspectError,
    UnknownFormatError,
)


def test_whatever_is_raised_on_purpose_has_one_base() -> None:
    for kind in (CaptureError, UnknownFormatError, OutputError, DecodeError, LimitExceeded):
        assert issubclass(kind, RpcInspectError)
    assert issubclass(UnknownFormatError, CaptureError)
    assert issubclass(LimitExceeded, DecodeError)
    assert not issubclass(DecodeError, CaptureError)
    assert not issubclass(RpcInspectError, (ValueError, OSError))


@pytest.mark.parametrize(("offset", "said"), [(None, "odd"), (0, "odd (at byte 0)"), (9, "odd (at byte 9)")])
def test_a_decode_error_says_where(offset: int | None, said: str) -> None:
    error = DecodeError("pickle", "odd", offset)
    assert (error.layer, error.reason, error.offset, str(error)) == ("pickle", "odd", offset, said)


def test_a_limit_says_which_and_by_how_much() -> None:
    error = LimitExceeded("tensor", "max_bytes", 1000, 1 << 20, 5)
    assert (error.limit, error.bound, error.value) == ("max_bytes", 1000, 1 << 20)
    assert str(error) == "1,048,576 is over the limit max_bytes = 1,000 (at byte 5)"
    assert error.reason == "1,048,576 is over the limit max_bytes = 1,000"


def test_what_is_not_known_of_a_place_is_none() -> None:
    assert structs.astuple(Location()) == (None, None, None, None)
    assert Location(packet=3) == Location(capture=None, packet=3)


def test_problems_are_values() -> None:
    one = Problem("tcp", "lost", Location(packet=1))
    assert one == Problem("tcp", "lost", Location(packet=1))
    assert len({one, Problem("tcp", "lost", Location(packet=1))}) == 1
    with pytest.raises(AttributeError):
        one.reason = "found"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(one)) == one
