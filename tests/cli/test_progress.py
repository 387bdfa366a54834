"""The bar on standard error."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from rpcinspect.cli.progress import ProgressBar


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


def test_all_that_there_is_ends_it_and_more_begins_another() -> None:
    progress, clock, out = bar(terminal=True)
    with progress:
        for number in (1, 2):
            progress(1, 40)
            clock.now += 1.5
            progress(20, 40)
            assert not out.getvalue().endswith("\x1b[2K")
            progress(40, 40)
            assert out.getvalue().endswith("\x1b[1A\x1b[2K")  # taken away
            clock.now += 1.5
            progress(1, 40)  # a second must pass again
            assert out.getvalue().endswith("\x1b[1A\x1b[2K")
            progress(40, 40)
            assert out.getvalue().count("\x1b[1A\x1b[2K") == number


def test_how_much_there_is_need_not_be_known() -> None:
    progress, clock, out = bar(terminal=True)
    with progress:
        progress(0, None)
        clock.now += 1.5
        progress(7, None)
        assert "7/?" in out.getvalue()
        clock.now += 1.5
        progress(8, 30)
        assert "8/30" in out.getvalue()


@pytest.mark.parametrize("width", [12, 40, 80, 300])
def test_it_fits_the_terminal(width: int) -> None:
    for in_bytes in (False, True):
        out, clock = io.StringIO(), Clock()
        console = Console(file=out, force_terminal=True, width=width, color_system=None)
        with ProgressBar("comparing", console, clock, in_bytes=in_bytes) as progress:
            progress(0, 123_456_789)
            clock.now += 1.5
            progress(99_456_789, 123_456_789)
        lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n").splitlines()
        assert max(map(len, lines)) <= width


def test_the_terminal_keeps_its_cursor() -> None:
    progress, clock, out = bar(terminal=True)
    with progress:
        progress(0, 9)
        clock.now += 1.5
        progress(5, 9)
        assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")


def test_nothing_on_terminals_that_can_not_take_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    progress, clock, out = bar(terminal=True)
    with progress:
        for done in range(5):
            progress(done, 9)
            clock.now += 1.0
    assert out.getvalue() == ""


def test_it_goes_when_it_was_interrupted_while_it_was_drawn() -> None:
    class Interrupting(io.StringIO):
        def write(self, piece: str) -> int:
            done = super().write(piece)
            if "comparing" in piece and not self.raised:
                self.raised = True
                raise KeyboardInterrupt
            return done

        raised = False

    out, clock = Interrupting(), Clock()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    with ProgressBar("comparing", console, clock) as progress:
        progress(0, 9)
        clock.now += 1.5
        with pytest.raises(KeyboardInterrupt):
            progress(5, 9)
        assert out.raised
    assert out.getvalue().endswith("\x1b[2K")


def test_what_is_waited_for_on_a_terminal() -> None:
    progress, clock, out = bar(terminal=True)
    with progress:
        progress(1, 40)
        progress.waits("ps to answer #12", 1.0)
        assert "waiting for ps to answer #12: 1 s" in out.getvalue()
        progress.waits("ps to answer #12", 2.0)
        assert "waiting for ps to answer #12: 2 s" in out.getvalue()
        size = len(out.getvalue())
        clock.now += 3.0
        progress(2, 40)
        assert "waiting" not in out.getvalue()[size:]
        assert "replaying" in out.getvalue()[size:]


def test_what_is_waited_for_where_there_is_no_terminal() -> None:
    """After ten seconds, then after twice as many; another thing begins anew."""
    lines: list[str] = []
    console = Console(file=io.StringIO(), force_terminal=False)
    with ProgressBar("replaying", console, line=lines.append) as progress:
        for second in range(1, 70):
            progress.waits("ps to answer #12", float(second))
        for second in range(1, 13):
            progress.waits("ps to answer #14", float(second))
    assert lines == [
        "waiting for ps to answer #12: 10 s",
        "waiting for ps to answer #12: 20 s",
        "waiting for ps to answer #12: 40 s",
        "waiting for ps to answer #14: 10 s",
    ]
