"""`rpcinspect browse` driven by Textual's pilot, for tests: a capture, keys, what is on the screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from textual.pilot import Pilot

from rpcinspect.browse.app import Browser
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.lines import LinesView
from rpcinspect.browse.marks import Marks
from rpcinspect.pipeline import Decoding

T = TypeVar("T")
ROUNDS = 400
PAUSE_S = 0.02


async def until(pilot: Pilot[int], holds: Callable[[], bool]) -> None:
    """Waits until something holds, at most eight seconds and more where the machine is busy."""
    for _ in range(ROUNDS):
        if holds():
            return
        await pilot.pause(PAUSE_S)
    raise AssertionError("it does not come to hold")


@asynccontextmanager
async def browser(
    path: Path, size: tuple[int, int] = (100, 30), *, marks: Marks | None = None, wait: bool = True
) -> AsyncIterator[tuple[Browser, Pilot[int]]]:
    """The app on a capture; `wait`: everything was read and is shown."""
    reading = GrowingRun(Decoding([str(path)]))
    app = Browser(reading, Marks() if marks is None else marks)
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            if wait:
                await until(pilot, lambda: reading.state in ("done", "failed") and app.settled)
                await pilot.pause()
            yield app, pilot
    finally:
        reading.close()


def driven(
    path: Path, act: Callable[[Browser, Pilot[int]], Awaitable[T]], size: tuple[int, int] = (100, 30)
) -> T:
    """What a function of an app gives that has read all of a capture."""

    async def run() -> T:
        async with browser(path, size) as (app, pilot):
            return await act(app, pilot)

    return asyncio.run(run())


def read_whole(path: Path) -> GrowingRun:
    """A capture that was read to its end, without an app; whoever asks closes it."""
    reading = GrowingRun(Decoding([str(path)]))
    reading.start()
    reading.wait(60)
    assert reading.state == "done", reading.why
    return reading


def shown_lines(view: LinesView) -> list[str]:
    """The lines of a list that are on the screen, its header first."""
    return ["".join(segment.text for segment in view.render_line(y)) for y in range(view.size.height)]


def screen_text(app: Browser) -> str:
    """All that is on the screen."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in line) for line in lines)
