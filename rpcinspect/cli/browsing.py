"""What `rpcinspect browse` does: opens the captures, then runs the app until a key ends it.

In: the options. Out: the exit code.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rpcinspect.browse.app import Browser
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.marks import Marks
from rpcinspect.browse.terminal import run_in_terminal
from rpcinspect.pipeline import Decoding

if TYPE_CHECKING:
    from rpcinspect.cli.browse import BrowseCommand


def browse(asked: BrowseCommand) -> int:
    """Shows captures until a key ends it."""
    reading: GrowingRun | None = None

    def heard(done: int, of: int | None) -> None:
        if reading is not None:
            reading.heard(done, of)

    options = replace(asked.decoding_options(), progress=heard, by_completion=asked.live)
    reading = GrowingRun(Decoding(asked.sources(), options), follows=asked.live)
    try:
        code = run_in_terminal(Browser(reading, Marks.of(asked.files[0]) if asked.files else Marks(None)))
    finally:
        reading.close()
    end_at_once(code)
    return code


def end_at_once(code: int) -> None:
    """Ends the program where threads still work answers out that nobody waits for: Python would wait."""
    if any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
