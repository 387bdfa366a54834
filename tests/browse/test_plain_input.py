"""What is pasted into a line holds nothing that a terminal would obey."""

from __future__ import annotations

import asyncio

from textual import events
from textual.app import App, ComposeResult

from rpcinspect.browse.plain_input import PlainInput


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
