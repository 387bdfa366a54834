"""What `rpcinspect browse` does: opens the captures, then runs the app until a key ends it.

In: the options. Out: the exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rpcinspect.browse.app import Browser
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.marks import Marks
from rpcinspect.browse.output_lines import OutputLines
from rpcinspect.browse.terminal import run_in_terminal
from rpcinspect.capture import CaptureInput
from rpcinspect.cli.collector import imports_are_over
from rpcinspect.cli.ending import end_at_once
from rpcinspect.pipeline import Decoding, Options

if TYPE_CHECKING:
    from rpcinspect.cli.browse import BrowseCommand


SWITCH_S = 0.0005
"""How long the reading may keep the interpreter while a key waits."""


def browse(asked: BrowseCommand) -> int:
    """Shows captures until a key ends it."""
    options = asked.decoding_options(by_completion=asked.live)
    marks = Marks.beside([] if asked.interface is not None else asked.files)
    code = browse_sources(asked.sources(), options, marks, follows=asked.live, keeps=asked.index)
    end_at_once(code)


def browse_sources(
    sources: Sequence[CaptureInput],
    options: Options,
    marks: Marks,
    *,
    follows: bool,
    keeps: bool = False,
    ends: Callable[[], str] | None = None,
    output: Path | None = None,
) -> int:
    """Shows what is read. `keeps`: an index is made; `ends`: see `GrowingRun`; `output`: of the command that
    is being recorded."""
    imports_are_over()
    sys.setswitchinterval(SWITCH_S)
    reading: GrowingRun | None = None

    def heard(done: int, of: int | None) -> None:
        if reading is not None:
            reading.heard(done, of)

    reading = GrowingRun(
        Decoding(sources, replace(options, progress=heard)), follows=follows, keeps=keeps, ends=ends
    )
    try:
        app = Browser(reading, marks)
        app.output = None if output is None else OutputLines(output)
        return run_in_terminal(app)
    finally:
        reading.close()
