"""Exporting by keys: what is asked, what is never done unasked."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from rpcinspect.browse.app import Browser
from rpcinspect.browse.marks import Marks
from rpcinspect.browse.screens import Chooser, PasteScreen, TextPrompt
from tests.browsing import browser, driven, screen_text, until
from tests.cli.runner import rpcinspect
from tests.places import CAPTURES


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(CAPTURES / "basic_chain.pcap", tmp_path / "chain.pcap"))


async def choose(app: Browser, pilot: Pilot[int], text: str) -> None:
    """Chooses the line of a chooser that begins so."""
    await until(pilot, lambda: isinstance(app.screen, Chooser))
    chooser = app.screen
    assert isinstance(chooser, Chooser)
    lines = [line.text for line in chooser._lines]
    (at,) = (at for at, line in enumerate(lines) if line.startswith(text))
    await pilot.press(*["down"] * at, "enter")
    await until(pilot, lambda: app.screen is not chooser)


async def name(app: Browser, pilot: Pilot[int], text: str | None = None) -> str:
    """Answers with a name; returns what was offered."""
    await until(pilot, lambda: isinstance(app.screen, TextPrompt))
    prompt = app.screen
    line = prompt.query_one(Input)
    offered = line.value
    if text is not None:
        line.value = text
    await pilot.press("enter")
    await until(pilot, lambda: app.screen is not prompt)
    return offered


async def at_the_top(app: Browser, pilot: Pilot[int]) -> None:
    await pilot.press("g")
    await until(pilot, lambda: app.reading.number(app.row or 0) == 6)


def told(app: Browser) -> str:
    return "\n".join(one.message for one in app._notifications)


def test_what_is_marked_is_written_and_nothing_is_written_over_unasked(chain: Path) -> None:
    """Then it is looked at with the command that opens captures."""
    before = chain.read_bytes()

    async def act(app: Browser, pilot: Pilot[int]) -> None:
        await at_the_top(app, pilot)
        await pilot.press("m", "down", "m", "e")
        await choose(app, pilot, "what is marked: 2 messages")
        await choose(app, pilot, "a capture")
        assert await name(app, pilot) == "chain-marked.pcap"
        await until(pilot, lambda: "wrote 4 messages in chain-marked.pcap" in told(app))

        Path("chain-marked.pcap").write_bytes(b"precious")
        await pilot.press("e")
        await choose(app, pilot, "message 8")
        await choose(app, pilot, "a capture")
        await name(app, pilot, "chain-marked.pcap")
        await choose(app, pilot, "choose another name")
        assert Path("chain-marked.pcap").read_bytes() == b"precious"
        await name(app, pilot, str(chain))  # the capture itself: no question, another name
        assert chain.read_bytes() == before
        assert "is the capture that is shown" in told(app)
        await name(app, pilot, "chain-marked.pcap")
        await choose(app, pilot, "write over it")
        await until(pilot, lambda: "wrote 2 messages in chain-marked.pcap" in told(app))

    driven(chain, act)
    ran = rpcinspect("decode", "chain-marked.pcap", "--calls")
    assert ran.code == 0
    assert "aten::add" in ran.out
    assert chain.read_bytes() == before


def test_tensors_go_into_a_folder_which_is_not_replaced_unasked(chain: Path) -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> None:
        for again in (False, True):
            await pilot.press("e")
            await choose(app, pilot, "all 24 messages")
            await choose(app, pilot, "tensors")
            await name(app, pilot)
            if again:
                await choose(app, pilot, "choose another name")
                await until(pilot, lambda: isinstance(app.screen, TextPrompt))
                await pilot.press("escape")
            else:
                await until(pilot, lambda: "in chain-all-tensors" in told(app))

    driven(chain, act)
    assert sorted(path.name for path in Path("chain-all-tensors").iterdir()) == [
        "index.jsonl",
        "tensors-00001.safetensors",
    ]


def test_a_command_line_is_shown_and_given_to_the_terminal(chain: Path) -> None:
    async def act(app: Browser, pilot: Pilot[int]) -> tuple[str, str]:
        await at_the_top(app, pilot)
        await pilot.press("e")
        await choose(app, pilot, "message 6")
        await choose(app, pilot, "command lines")
        await until(pilot, lambda: isinstance(app.screen, PasteScreen))
        await pilot.press("down", "down")
        await pilot.pause()
        text = screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, PasteScreen))
        return text, app.clipboard

    text, copied = driven(chain, act)
    assert copied == f"rpcinspect decode {chain} -f 'index == 6' -w chain-6.pcap"
    assert "write a capture" in text
    assert "-w chain-6.pcap" in text


def test_before_the_end_nothing_is_exported(chain: Path) -> None:
    async def run() -> None:
        async with browser(chain) as (app, pilot):
            whole, app.reading.run = app.reading.run, None
            await pilot.press("e")
            await until(pilot, lambda: "once the whole capture was read" in told(app))
            assert not isinstance(app.screen, Chooser)
            app.reading.run = whole

    asyncio.run(run())


def test_notes_are_shown_listed_and_led_to(chain: Path) -> None:
    """In the app: a note stands below its message, in the list of marks, and is there again."""

    async def run() -> None:
        async with browser(chain, (80, 24), marks=Marks.beside([str(chain)])) as (app, pilot):
            await at_the_top(app, pilot)
            await pilot.press("down", "c")
            await until(pilot, lambda: isinstance(app.screen, TextPrompt))
            app.screen.query_one(Input).value = "NaN [bold] here"
            await pilot.press("enter")
            await until(pilot, lambda: "note on #8: NaN [bold] here" in screen_text(app))
            app.marks.note(app.reading.record(app.row or 0), "NaN [bold]\x1b[31m\u202e here")
            await pilot.press("down", "down", "m")
            await until(pilot, lambda: "note on" not in screen_text(app))
        async with browser(chain, (80, 24), marks=Marks.beside([str(chain)])) as (app, pilot):
            await until(pilot, lambda: len(app.marks) == 2)
            await pilot.press("apostrophe")
            await until(pilot, lambda: isinstance(app.screen, Chooser))
            await pilot.pause()
            text = screen_text(app)
            assert "2 marked messages" in text
            assert "#8  “NaN [bold]\\x1b[31m\\u202e here”  worker0 → worker1" in text
            await pilot.press("down", "enter")
            await until(pilot, lambda: app.reading.number(app.row or 0) == 11)
            await pilot.press("M")
            await until(pilot, lambda: app.reading.number(app.row or 0) == 8)
            await until(pilot, lambda: "note on #8: NaN" in screen_text(app))

    asyncio.run(run())
