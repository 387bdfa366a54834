"""Screens that ask answer once; what is pasted into them holds nothing that a terminal would obey."""

from __future__ import annotations

import asyncio

from textual import events
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from rpcinspect.browse.app import Browser
from rpcinspect.browse.screens import Chooser, PlainInput
from tests.browsing import driven, until
from tests.cli.runner import CHAIN


def test_enter_that_is_pressed_twice_answers_once() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> list[int]:
        shown = []
        for keys in ("mGm", "'"):
            for key in keys:
                await pilot.press(key)
        assert isinstance(app.screen, Chooser)
        app.simulate_key("enter")
        app.simulate_key("enter")  # as a double click has it, before the screen is gone
        await until(pilot, lambda: not isinstance(app.screen, Chooser))
        await pilot.pause()
        assert app.row is not None
        shown.append(app.reading.number(app.row))
        await pilot.press("tab", "enter")
        return [*shown, len(app.screen_stack)]

    assert driven(CHAIN, act) == [6, 1]


class OneLine(App[None]):
    def compose(self) -> ComposeResult:
        yield PlainInput()


def test_only_what_is_visible_is_pasted() -> None:
    async def run() -> str:
        app = OneLine()
        async with app.run_test() as pilot:
            await pilot.press("a", "é")
            app.screen.focused.post_message(events.Paste("\x1b]0;x\x07\u202eb 日\x9b"))
            await pilot.pause()
            return app.query_one(PlainInput).value

    assert asyncio.run(run()) == "aé]0;xb 日"
