"""What becomes of an exception that a stage did not expect: a problem that tells it, while the rest goes on.

In: the exception, in the `except` clause that caught it. Out: a `Problem`, or a line for whoever has no place
for one. It is a fault of this package, whatever the input was; so the text says what it was, where in the
package, and how to see the traceback.

Raised again are errors that are no fault: a capture that can no longer be read, a full disk. Where the
environment variable RPCINSPECT_DEBUG is set, as in our tests, everything is.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from rpcinspect.errors import DecodeError, RpcInspectError

if TYPE_CHECKING:
    from rpcinspect.problems import Location, Problem

DEBUG = "RPCINSPECT_DEBUG"
MAX_TEXT = 200
"""Characters of an exception's text that are shown: it may quote what was captured."""
PACKAGE = Path(__file__).parent


def unexpected(error: Exception, layer: str, where: Location) -> Problem:
    """The problem that stands for what could not be done there."""
    meant = isinstance(error, (RpcInspectError, OSError)) and not isinstance(error, DecodeError)
    if meant or os.environ.get(DEBUG):
        raise error
    from rpcinspect.problems import Problem  # not for the sake of a command's help, which needs `fault` only

    return Problem(layer, fault(error), where)


def fault(error: Exception) -> str:
    """One line: kind and text of the exception, where it was raised, how to see more."""
    try:
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
    except Exception as worse:  # an integer of thousands of digits in it, for one
        text = f"{type(error).__name__}, whose text can't be shown ({type(worse).__name__})"
    if len(text) > MAX_TEXT:
        text = f"{text[: MAX_TEXT - 1]}…"
    return f"rpcinspect itself failed: {text}{_place(error)}; {DEBUG}=1 shows the traceback"


def _place(error: Exception) -> str:
    """The innermost line of this package that led to it."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(PACKAGE):
            return f" ({path.relative_to(PACKAGE).as_posix()}, line {frame.lineno})"
    return ""
