"""Where views print: the same text with and without rich, styles on terminals only."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.text import Text

from rpcinspect.views.text.console import ASKED, PlainConsole, StyledText, console_for


@pytest.fixture(autouse=True)
def _unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ASKED:
        monkeypatch.delenv(name, raising=False)


def finding() -> StyledText:
    text = StyledText()
    text.append("error: lost-edge", "bold red")
    text.append("  of message 3 → 4\n  see there")
    return text


def printed(console: object, *parts: object) -> str:
    assert isinstance(console, (PlainConsole, Console))
    for part in parts:
        console.print(part, soft_wrap=True)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_file_gets_what_rich_would_write_there() -> None:
    parts = (StyledText("a line", "bold"), StyledText(), finding(), "words [not markup] :smile:")
    rich = Console(file=io.StringIO(), highlight=False, markup=False, emoji=False, soft_wrap=True)
    plain = console_for(io.StringIO())
    assert isinstance(plain, PlainConsole)
    assert printed(plain, *parts) == printed(rich, *parts)


def test_a_terminal_gets_the_styles() -> None:
    text = Text()
    text.append("error: lost-edge", "bold red")
    text.append("  of message 3 → 4\n  see there")

    def on_terminal(part: object) -> str:
        return printed(Console(file=io.StringIO(), force_terminal=True, width=100), part)

    assert on_terminal(finding()) == on_terminal(text)
    assert on_terminal(StyledText("a line", "bold")) == on_terminal(Text("a line", style="bold"))
    assert "\x1b[" in on_terminal(finding())


@pytest.mark.parametrize(("name", "value"), [("FORCE_COLOR", "1"), ("TTY_COMPATIBLE", "1")])
def test_who_asks_for_styles_has_rich(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    console = console_for(io.StringIO())
    assert isinstance(console, Console)
    assert console.is_terminal


def test_standard_output_is_what_it_is_when_something_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    console = console_for(None)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert printed(console, "here") == "here\n"
