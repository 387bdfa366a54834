"""The error tree: what can be caught as what, and what is said."""

from __future__ import annotations

import pytest

from rpcinspect.errors import (
    CaptureError,
    DecodeError,
    LimitExceeded,
    OutputError,
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
