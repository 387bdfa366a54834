"""Which messages a view shows."""

from __future__ import annotations

from rpcinspect.views.shown import Shown


def test_rows_keep_the_order_that_is_asked_for() -> None:
    shown = Shown("request", bytes([1, 0, 1, 1]))
    assert shown.count == 3
    assert shown.of([3, 1, 0, 2]) == [3, 0, 2]
