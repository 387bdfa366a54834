"""Help and palette: nothing that a key does is left out, and each says what it does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from rpcinspect.browse.app import Browser
from rpcinspect.browse.keys import GROUPS, KeyHelp, keys_of
from rpcinspect.browse.moves import MOVES
from rpcinspect.browse.screens import HelpScreen
from rpcinspect.browse.views import VIEWS
from tests.browsing import browser, driven, screen_text, until
from tests.places import CAPTURES

CHAIN = CAPTURES / "basic_chain.pcap"
SIZES = [(80, 24), (120, 40)]


def listed(app: Browser) -> list[str]:
    """The names of the commands in the palette."""
    options = app.screen.query_one(OptionList)
    return [str(options.get_option_at_index(at).prompt).splitlines()[0] for at in range(options.option_count)]


async def help_lines(app: Browser, pilot: Pilot[int]) -> list[str]:
    """All lines of the help, from the first to the last screen of it."""
    await pilot.press("question_mark")
    await until(pilot, lambda: isinstance(app.screen, HelpScreen))
    scroll = app.screen.query_one(VerticalScroll)
    seen: dict[str, None] = {}
    while True:
        await pilot.pause()
        seen |= dict.fromkeys(line.strip(" │▁▂▃▄▅▆▇█") for line in screen_text(app).splitlines())
        if scroll.scroll_y >= scroll.max_scroll_y:
            break
        scroll.scroll_page_down(animate=False)
    await pilot.press("escape")
    return [*seen]


def test_every_key_of_the_app_is_there_with_what_it_does() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> tuple[list[KeyHelp], set[str]]:
        bound = {one.action for _, one in app._bindings if one.description}
        return keys_of(app.screen), bound

    found, bound = driven(CHAIN, act)
    assert bound <= {one.action for one in found}
    untold = {one.name for one in found if one.group and not one.about}
    assert untold == {"next line with the text", "line before with the text"}  # whose names say it
    by_name = {one.name: one for one in found}
    assert {f"view: {view.name}" for view in VIEWS} | {f"go to: {move.name}" for move in MOVES} <= {*by_name}
    assert by_name["mark"].about == "Marks the message, or takes its mark and note away"
    groups = [one.group for one in found]
    assert [*dict.fromkeys(groups)] == ["", *GROUPS, "Program"]
    taken = [key for one in found for key in one.keys]
    assert len(taken) == len({*taken}), "two actions of one key"


@pytest.mark.parametrize("size", SIZES)
def test_help_begins_with_the_pane_and_can_be_read_to_its_end(size: tuple[int, int]) -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> tuple[list[str], list[KeyHelp], str]:
        return await help_lines(app, pilot), keys_of(app.screen), screen_text(app)

    lines, found, after = driven(CHAIN, act, size)
    told = "\n".join(lines)
    assert told.index("In this pane") < told.index("Views") < told.index("Go to") < told.index("Mouse")
    missing = [one.name for one in found if (one.about or one.name.capitalize())[:30] not in told]
    assert not missing
    assert "basic_chain.scale" in after


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_key_of_the_help_is_always_on_the_last_line(width: int) -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> str:
        await pilot.pause()
        return screen_text(app).splitlines()[-1]

    line = driven(CHAIN, act, (width, 24))
    assert "? help" in line
    assert line.lstrip().startswith("q back")
    if width >= 80:
        for key in ("/ filter", "# go to", "m mark", "e export", ": commands"):
            assert key in line


def test_the_palette_has_every_action_and_none_of_textuals_own() -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> tuple[list[str], list[KeyHelp]]:
        expected = keys_of(app.screen)
        await pilot.press("colon")
        await until(
            pilot, lambda: bool(app.screen.query(OptionList)) and len(listed(app)) >= len(expected) - 1
        )
        return listed(app), expected

    names, expected = driven(CHAIN, act)
    own = {one.name for one in expected if one.action != "command_palette"}
    assert {name.split("   ")[0] for name in names} == own
    assert not own & {"Theme", "Screenshot", "Keys", "Maximize"}


@pytest.mark.parametrize(
    ("typed", "holds"),
    [
        ("findings", lambda app: app.view.name == "findings"),
        ("takes its mark", lambda app: [app.reading.number(row) for row in app.marks] == [6]),
        ("help", lambda app: isinstance(app.screen, HelpScreen)),
        ("down", lambda app: app.lines_view.cursor == 1),
    ],
)
def test_the_palette_does_what_the_key_does(typed: str, holds: Any) -> None:
    async def run() -> None:
        async with browser(CHAIN) as (app, pilot):
            await pilot.press("g")
            await until(pilot, lambda: app.reading.number(app.row or 0) == 6)
            await pilot.press("colon")
            await until(pilot, lambda: bool(app.screen.query(OptionList)))
            app.screen.query_one(Input).value = typed
            await until(pilot, lambda: 0 < len(listed(app)) < 20)
            await pilot.pause(0.3)
            await pilot.press("enter")
            await until(pilot, lambda: bool(holds(app)))

    asyncio.run(run())
