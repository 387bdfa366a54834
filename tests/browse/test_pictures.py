"""The pictures of docs/browse.md: screens of bundled captures, as they were when somebody looked at them.

`make pictures` writes them anew: look at what has changed, then commit it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from textual.pilot import Pilot
from textual.widgets import Input

from rpcinspect.browse.app import Browser
from rpcinspect.browse.tensor_view import TensorPane
from tests.browse.paired import BASE, captured, pair_browser
from tests.browsing import browser, screen_text, until
from tests.places import CAPTURES

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
WRITES = "WRITE_PICTURES" in os.environ
SIZE = (104, 30)
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""They would be loaded from somewhere."""
MAX_BYTES = 200_000
NAN = CAPTURES / "reports" / "job" / "nan.pcap.gz"


class BrowseScreen(Struct, frozen=True):
    """One picture: a capture, keys, and what is on the screen when it is taken."""

    name: str
    capture: Path
    keys: tuple[str, ...]
    shows: str
    typed: str = ""
    """Into the line for a filter."""


SCREENS = (
    BrowseScreen("calls", CAPTURES / "rref_relay.pcap.gz", ("down", "down", "down"), "message 18"),
    BrowseScreen(
        "structure",
        CAPTURES / "basic_chain.pcap",
        ("enter", *["down"] * 9, "right", "down"),
        "tensor#0[3,4] float32",
    ),
    BrowseScreen("tensor", NAN, ("number_sign", *"106", "enter", "enter", "G", "enter"), "histogram"),
    BrowseScreen(
        "graph", CAPTURES / "basic_chain.pcap", ("3", "down", "enter", "backslash"), "critical path"
    ),
    BrowseScreen("findings", NAN, ("7",), "nonfinite-tensor"),
    BrowseScreen("timeline", CAPTURES / "rref_relay.pcap.gz", ("8", "down", "down"), "worker2"),
    BrowseScreen("filter", CAPTURES / "rref_relay.pcap.gz", ("slash",), "latency", "dst == worker1 and la"),
)


def compare(name: str, svg: str) -> None:
    """A picture with the one that is kept."""
    made, path = FONTS.sub("", svg), PICTURES / f"browse-{name}.svg"
    assert len(made) < MAX_BYTES
    assert "url(http" not in made
    if WRITES:
        path.write_text(made, encoding="utf-8")
    kept = path.read_text(encoding="utf-8")
    if kept != made:
        differs = unified_diff(_words(kept), _words(made), "kept", "made", lineterm="", n=1)
        raise AssertionError("\n".join([f"{name}: make pictures writes it anew, look at it then", *differs]))


def _words(svg: str) -> list[str]:
    return [re.sub(r"<[^>]*>", "", line) for line in svg.splitlines()]


async def shown(app: Any, pilot: Pilot[int], holds: Callable[[], bool]) -> str:
    """The picture, once that holds and nothing changes any more."""
    await until(pilot, holds)
    before = ""
    while before != (now := app.export_screenshot(title="rpcinspect browse")):
        before = now
        await pilot.pause(0.2)
    return now


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_a_screen_looks_as_it_did(screen: BrowseScreen) -> None:
    async def run() -> str:
        async with browser(screen.capture, SIZE) as (app, pilot):
            for key in screen.keys:
                await pilot.press(key)
                await until(pilot, lambda: "working it out" not in screen_text(app))
                await pilot.pause(0.1)
            if screen.typed:
                line = app.filter_line.query_one(Input)
                line.cursor_blink = False
                await pilot.press(*(" " if one == " " else one for one in screen.typed))
            return await shown(app, pilot, lambda: all_is_there(app, screen.shows))

    compare(screen.name, asyncio.run(run()))


def all_is_there(app: Browser, text: str) -> bool:
    """Whether a text is on the screen, and nothing is still being worked out."""
    worked = all("worked out" not in pane.worked.note for pane in app.screen.query(TensorPane))
    return worked and text in screen_text(app)


def test_two_runs_look_as_they_did() -> None:
    async def run() -> str:
        async with pair_browser(BASE, captured("dropout_seed"), (120, 36)) as (app, pilot):
            return await shown(app, pilot, lambda: app.place is not None)

    compare("diff", asyncio.run(run()))
