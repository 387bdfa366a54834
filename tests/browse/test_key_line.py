"""The keys at the foot of the screen: those of the pane one is in, at any width, and pressed by a click."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from rpcinspect.browse.app import Browser
from rpcinspect.browse.key_line import KeyLine
from tests.browsing import driven, screen_text, until
from tests.places import CAPTURES

CAPTURE = CAPTURES / "basic_chain.pcap"


def foot(app: Browser) -> str:
    """The last line of the screen."""
    return screen_text(app).splitlines()[-1]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_whole_keys_are_shown_and_help_stays_at_the_right_end(width: int) -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> str:
        return foot(app)

    line = driven(CAPTURE, act, (width, 24))
    assert line.rstrip().endswith("? help")
    assert line.startswith(" q back ")
    whole = " q back  / filter  f find  # go to  m mark  e export  : commands"
    shown = line.rstrip().removesuffix("? help").rstrip()
    assert whole.startswith(shown) or shown.startswith(whole)
    assert not whole.startswith(shown) or whole[len(shown) : len(shown) + 1] in ("", " ")
    if width == 200:
        assert "p partner" in line


def test_the_line_changes_with_the_pane_and_a_click_presses_the_key() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> None:
        line = foot(app)
        assert await pilot.click(KeyLine, offset=(line.index("/ filter") + 3, 0))
        await until(pilot, lambda: isinstance(app.focused, Input))
        await until(pilot, lambda: "esc close" in foot(app) and "tab complete" in foot(app))
        assert "/ filter" not in foot(app)  # it would be typed
        await pilot.press("escape")
        await until(pilot, lambda: foot(app) == line)
        assert await pilot.click(KeyLine, offset=(line.rindex("? help") + 2, 0))
        await until(pilot, lambda: type(app.screen).__name__ == "HelpScreen")

    driven(CAPTURE, act)
