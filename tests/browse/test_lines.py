"""The list: lines that are longer than it is wide, and its end, which is followed only while lines come."""

from __future__ import annotations

import asyncio

from textual.app import App, ComposeResult
from textual.pilot import Pilot

from rpcinspect.browse.lines import FixedLines, LinesView, ListLine, shifted
from tests.browse.panes import drive, screen
from tests.browsing import browser, until
from tests.places import recorded


class ListOnly(App[None]):
    """A list that fills the screen."""

    def compose(self) -> ComposeResult:
        yield LinesView(FixedLines([ListLine("short"), ListLine("".join(map(chr, range(48, 123))))]))


def test_long_lines_are_shifted_as_far_as_they_go() -> None:
    app = ListOnly()

    async def story(pilot: Pilot[None]) -> None:
        view = app.query_one(LinesView)
        seen = []
        for key in ("right", "l", "ctrl+pagedown", "right", "right", "left", "h", "left", "left"):
            await pilot.press(key)
            seen.append(screen(view)[1].strip())
        assert seen[3] == seen[4]
        assert seen[4].endswith("z")
        assert seen[0][0] == chr(48 + 19)
        assert seen[-1][:2] == "01"

    drive(app, story, (40, 5))


def test_wide_characters_keep_their_columns() -> None:
    assert [shifted("日本ab", by) for by in range(7)] == ["日本ab", " 本ab", "本ab", " ab", "ab", "b", ""]
    assert shifted("a" * 10_000, 3) == "a" * 3997


def test_the_last_line_is_no_place_to_stay_once_all_is_read() -> None:
    async def run() -> None:
        async with browser(recorded("rref_relay.pcap")) as (app, pilot):
            await pilot.press("G", "6")
            await until(pilot, lambda: app.settled and len(app.lines_view.lines) > 1)
            assert app.lines_view.cursor == 0
            await pilot.press("1", "enter", "G")
            assert app.message.structure_pane.cursor > 3
            await pilot.press("p")
            await until(pilot, lambda: app.message.structure_pane.cursor == 0)

    asyncio.run(run())
