"""What is closed at the end of a `with` statement."""

from __future__ import annotations

import pytest

from rpcinspect.files.closing import Closing


class Door(Closing):
    """Counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_it_is_closed_once_also_after_an_error() -> None:
    with Door() as door:
        assert not door.closed
    assert door.closed == 1
    with pytest.raises(ZeroDivisionError), door:
        1 / 0  # noqa: B018
    assert door.closed == 2


def test_who_has_no_close_is_no_such_thing() -> None:
    with pytest.raises(NotImplementedError):
        Closing().close()
