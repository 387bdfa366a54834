"""Two runs for tests of `browse --diff`: made up ones that are compared at once, and captures in the app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from textual.pilot import Pilot

from rpcinspect.browse.pair_app import PairBrowser
from rpcinspect.browse.pair_lines import PairLines
from rpcinspect.browse.pair_reading import ComparedRuns, PairReading
from rpcinspect.diff.compare import compare_runs
from rpcinspect.equality.rules import Rules
from rpcinspect.pipeline import Decoding
from tests.browsing import until
from tests.diff.stories import Story
from tests.places import CAPTURES

T = TypeVar("T")
BASE = CAPTURES / "pairs" / "base.pcap.gz"


def captured(name: str) -> Path:
    """The capture of a run that differs in one thing from `BASE`."""
    return CAPTURES / "pairs" / f"{name}.pcap.gz"


def compared(a: Story, b: Story, rules: Rules | None = None) -> ComparedRuns:
    """Two made up runs."""
    runs = a.opened(), b.opened()
    return ComparedRuns(runs, compare_runs(*runs, rules or Rules()))


def reading_of(*paths: Path, rules: Rules | None = None) -> PairReading:
    """Two captures that nobody has begun to read."""
    decodings = [Decoding([str(path)]) for path in paths]
    return PairReading(
        decodings, lambda a, b, progress: compare_runs(a, b, rules or Rules(), progress=progress)
    )


@asynccontextmanager
async def pair_browser(
    a: Path, b: Path, size: tuple[int, int] = (120, 36), *, rules: Rules | None = None
) -> AsyncIterator[tuple[PairBrowser, Pilot[int]]]:
    """The app, once it shows the comparison."""
    reading = reading_of(a, b, rules=rules)
    app = PairBrowser(reading)
    try:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: isinstance(app.lines_view.lines, PairLines))
            await pilot.pause()
            yield app, pilot
    finally:
        reading.close()


def driven_pair(
    b: str,
    act: Callable[[PairBrowser, Pilot[int]], Awaitable[T]],
    size: tuple[int, int] = (120, 36),
    *,
    a: Path = BASE,
    rules: Rules | None = None,
) -> T:
    """What a function of the app gives on two of the captures that differ in one thing."""

    async def run() -> T:
        async with pair_browser(a, captured(b), size, rules=rules) as (app, pilot):
            return await act(app, pilot)

    return asyncio.run(run())
