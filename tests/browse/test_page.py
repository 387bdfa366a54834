"""docs/browse.md against the program: its tables of keys, and its story, key by key at 80×24."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from itertools import groupby
from pathlib import Path

from textual.pilot import Pilot

from rpcinspect.browse.app import Browser
from rpcinspect.browse.keys import HERE, KeyHelp, keys_of, shown_words
from rpcinspect.browse.marks import Marks
from rpcinspect.browse.tensor_view import TensorScreen
from tests.browse.paired import BASE, captured, pair_browser
from tests.browsing import browser, screen_text, until
from tests.places import CAPTURES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "browse.md").read_text(encoding="utf-8")
STORY = re.compile(r"<!-- keys: (.*?) -->\n+```\n(.*?)```", re.DOTALL)
OPENED = re.compile(r"\$ rpcinspect browse (\S+)\n")
EDGE = re.compile(r"[▁-█]?$")
"""Of a bar at the right edge."""


def rows_of(some: list[KeyHelp]) -> str:
    """A table of keys."""
    rows = [
        f"| {' '.join(_key(key) for key in one.keys)} | {shown_words(one).replace('|', chr(92) + '|')} |"
        for one in some
    ]
    return "\n".join(["| key | what it does |", "|---|---|", *rows])


def _key(key: str) -> str:
    return "`\\|`" if key == "|" else f"`{key}`"


def tables(screen: list[KeyHelp]) -> dict[str, str]:
    """By group."""
    return {group or HERE: rows_of(list(some)) for group, some in groupby(screen, key=lambda one: one.group)}


async def all_tables() -> dict[str, str]:
    """Of the app, of each pane, and of the app for two runs, by the titles that they have on the page."""
    async with browser(CAPTURES / "basic_chain.pcap") as (app, pilot):
        found = {
            ("Lists" if name == HERE else name): made for name, made in tables(keys_of(app.screen)).items()
        }
        app.message.structure_pane.focus()
        await pilot.pause()
        found["Structure"] = tables(_own(app))[HERE]
        app.message.bytes_pane.focus()
        await pilot.pause()
        found["Bytes"] = tables(_own(app))[HERE]
    async with pair_browser(BASE, captured("again")) as (pair, _):
        found["Two captures"] = rows_of(
            [one for one in keys_of(pair.screen) if one.group not in ("", "Program")]
        )
    return found


def _own(app: Browser) -> list[KeyHelp]:
    """Keys of the pane that lists do not have."""
    ofs = app.lines_view.BINDINGS
    listed = {getattr(one, "action", "") for one in ofs}
    return [one for one in keys_of(app.screen) if one.action not in listed or one.group]


def test_the_tables_of_keys_are_those_of_the_program() -> None:
    made = asyncio.run(all_tables())
    assert {name: table for name, table in made.items() if table not in PAGE} == {}


def test_the_story_happens_as_it_is_told(tmp_path: Path) -> None:
    opened = OPENED.search(PAGE)
    assert opened is not None
    capture = Path(shutil.copy(ROOT / opened[1], tmp_path))  # notes are kept beside it
    steps = STORY.findall(PAGE)
    assert len(steps) > 5

    async def run() -> None:
        async with browser(capture, (80, 24), marks=Marks.beside([str(capture)])) as (app, pilot):
            for keys, screen in steps:
                await press(pilot, keys)
                wanted = screen.splitlines()
                try:
                    await until(pilot, lambda wanted=wanted: not missing(wanted, app))
                except AssertionError:
                    raise AssertionError(
                        f"after {keys}: {missing(wanted, app)}\n{screen_text(app)}"
                    ) from None

    asyncio.run(run())


async def press(pilot: Pilot[int], keys: str) -> None:
    """Presses keys; what stands in quotes is typed."""
    for word in shlex.split(keys, posix=False):
        typed = word[1:-1] if word.startswith('"') else None
        await pilot.press(*([word] if typed is None else [{" ": "space"}.get(one, one) for one in typed]))
        await pilot.pause(0.15)
        await until(
            pilot, lambda: not isinstance(pilot.app.screen, TensorScreen) or "worked out" not in _text(pilot)
        )


def _text(pilot: Pilot[int]) -> str:
    assert isinstance(pilot.app, Browser)
    return screen_text(pilot.app)


def missing(wanted: list[str], app: Browser) -> list[str]:
    """Lines that are not on the screen, in their order; `…` alone stands for lines that are left out."""
    real = iter([EDGE.sub("", line.rstrip()).rstrip() for line in screen_text(app).splitlines()])
    return [line for line in wanted if line.strip() != "…" and line not in real]
