"""How the process ends: at once, without what Python does at its end.

In: an exit code. Python would free modules and messages one by one, a tenth of the time of a small capture;
the system takes them back as they are. Buffers are written, and functions for the end run, as Python does it.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import Any, NoReturn

MOST_TOOLS = 6
"""That `sys.monitoring` knows at a time."""


def end_at_once(code: int) -> NoReturn:
    """Ends the process once everything is closed, also where threads work out answers which nobody awaits
    any more."""
    with suppress(OSError):  # a terminal that is gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def end_soon(code: object) -> None:
    """Ends the process as `sys.exit` with this code would. Returns where that is Python's to do: other
    threads run, a profiler wants to tell what it saw, the code is a text, or standard output can't be
    written."""
    if watched() or threading.active_count() > 1 or not isinstance(code, int | None):
        return
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # Python says so, with an exit code of its own
        return
    os._exit(code or 0)


def watched() -> bool:
    """Returns whether a profiler, a debugger or the like looks at what Python does."""
    if sys.getprofile() is not None or sys.gettrace() is not None:
        return True
    monitoring: Any = getattr(sys, "monitoring", None)  # that of Python 3.12 and later, which cProfile uses
    return monitoring is not None and any(monitoring.get_tool(number) for number in range(MOST_TOOLS))
