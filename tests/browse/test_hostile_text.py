"""What was captured is shown and never obeyed: by the terminal, by Rich, by Textual."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from rpcinspect.browse.app import Browser
from rpcinspect.browse.views import VIEWS
from tests.browse.hostile import EVIL, hostile_log
from tests.browse.terminals import Terminal
from tests.browsing import browser, screen_text

ESCAPED = EVIL[:9].encode("unicode_escape").decode()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_log(tmp_path_factory.mktemp("hostile"))


def check(app: Browser, where: str) -> str:
    text = screen_text(app)
    assert [one for one in text if not one.isprintable() and one != "\n"] == [], where
    return text


def test_every_view_shows_it_as_it_is(log: Path) -> None:
    async def run() -> list[str]:
        told = []
        async with browser(log, (160, 40)) as (app, pilot):
            told.append(check(app, "first screen"))
            for at, view in enumerate(VIEWS):
                await pilot.press(str((at + 1) % 10))
                await pilot.pause(0.3)
                for key in ("G", "enter", "tab", "G", "escape"):
                    await pilot.press(key)
                    await pilot.pause()
                    told.append(check(app, f"{view.name} {key}"))
        return told

    told = asyncio.run(run())
    assert ESCAPED in "".join(told)
    assert "[bold]" in told[0]


def test_questions_and_notices(log: Path) -> None:
    async def run() -> None:
        async with browser(log, (160, 40)) as (app, pilot):
            for keys in (
                ["p", "u", "d", "b", "r", "m"],
                ["number_sign"],
                ["c"],
                ["f"],
                ["question_mark"],
                ["e"],
                ["M"],
            ):
                for key in keys:
                    await pilot.press(key)
                    await pilot.pause()
                    check(app, key)
                await _type(app, pilot, EVIL)
                check(app, f"{keys} typed")
                await pilot.press("escape")
                await pilot.pause()
                check(app, f"{keys} closed")

    asyncio.run(run())


async def _type(app: Browser, pilot: Pilot[int], text: str) -> None:
    focused = app.screen.focused
    if isinstance(focused, Input):
        focused.value = text
        await pilot.press("enter")
        await pilot.pause()


@pytest.mark.parametrize("text", ["src == ", 'call ~ "', EVIL, 'src == "[bold]x[/]"', f'call ~ "{EVIL}'])
def test_filters(log: Path, text: str) -> None:
    async def run() -> None:
        async with browser(log, (160, 40)) as (app, pilot):
            await pilot.press("slash")
            await pilot.pause()
            field = app.filter_line.query_one(Input)
            field.value = text
            field.cursor_position = len(text)
            await pilot.pause()
            check(app, "hints")
            await pilot.press("tab")
            await pilot.pause()
            check(app, "completed")
            await pilot.press("enter")
            await pilot.pause(0.2)
            check(app, "entered")

    asyncio.run(run())


def test_the_terminal_gets_none_of_it(log: Path) -> None:
    with Terminal("browse", log, columns=160, rows=40) as terminal:
        terminal.until("[bold]")
        for key in "1234567890":
            since = len(terminal.raw)
            terminal.press(key)
            terminal.until(lambda: len(terminal.raw) > since)  # noqa: B023
        terminal.press("q")
        assert terminal.ended() == 0
        for harm in ("\x1b]0", "\x1b[2J", "\x9b", "\u202e", "\u2066"):
            assert harm not in terminal.raw
