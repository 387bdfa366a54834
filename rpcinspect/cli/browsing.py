"""What `rpcinspect browse` does: opens the captures, then runs the app until a key ends it.

In: the options. Out: the exit code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rpcinspect.browse.app import Browser
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.marks import Marks
from rpcinspect.pipeline import Decoding

if TYPE_CHECKING:
    from rpcinspect.cli.browse import BrowseCommand


def browse(asked: BrowseCommand) -> int:
    """Shows captures until a key ends it."""
    reading: GrowingRun | None = None

    def heard(done: int, of: int | None) -> None:
        if reading is not None:
            reading.heard(done, of)

    options = replace(asked.decoding_options(), progress=heard)
    reading = GrowingRun(Decoding(asked.sources(), options), follows=asked.live)
    try:
        marks = Marks.beside([] if asked.interface is not None else asked.files)
        return Browser(reading, marks).run() or 0
    finally:
        reading.close()
