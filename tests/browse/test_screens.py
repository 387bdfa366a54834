"""Screens that ask answer once."""

from __future__ import annotations

from textual.pilot import Pilot

from rpcinspect.browse.app import Browser
from rpcinspect.browse.screens import Chooser
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
