"""The bar on standard error."""

from __future__ import annotations

import io

from rich.console import Console

from rpcinspect.commands.progress import ProgressBar


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


def bar(*, terminal: bool) -> tuple[ProgressBar, Clock, io.StringIO]:
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, force_terminal=terminal, width=80, color_system=None)
    return ProgressBar("replaying", console, clock), clock, out


def test_nothing_where_nobody_looks() -> None:
    progress, clock, out = bar(terminal=False)
    with progress:
        for done in range(100):
            clock.now += 1.0
            progress(done, 100)
    assert out.getvalue() == ""


def test_nothing_within_the_first_second() -> None:
    progress, clock, out = bar(terminal=True)
    with progress:
        for done in range(10):
            progress(done, 10)
            clock.now += 0.09
    assert out.getvalue() == ""


def test_a_bar_that_goes_away() -> None:
    progress, clock, out = bar(terminal=True)
    with progress:
        progress(1, 40)
        clock.now += 1.5
        progress(20, 40)
        assert "20/40" in out.getvalue()
        clock.now += 0.01
        progress(21, 40)
        assert "21/40" not in out.getvalue()
        clock.now += 1.0
        progress(30, 40)
        assert "30/40" in out.getvalue()
        size = len(out.getvalue())
    assert "\x1b[" in out.getvalue()[size:]  # the last thing is to take it away
