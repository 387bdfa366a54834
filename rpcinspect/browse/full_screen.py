"""Whether there is a terminal that a program can have for itself.

In: the standard streams and the environment. Out: why there is none, in one line. Standard input may be a
capture: keys come from the terminal itself then.
"""

from __future__ import annotations

import os
import sys

INSTEAD = "rpcinspect decode shows the same as text"
TERMINAL = "/dev/tty"


def missing_terminal(reads_stdin: bool) -> str | None:
    """Returns why nothing can be shown; None where it can. `reads_stdin`: a capture comes from there."""
    if not _is_terminal(1):
        return f"browse needs a terminal, and standard output is not one: {INSTEAD}"
    kind = os.environ.get("TERM", "")
    if kind in ("", "dumb"):
        told = f"TERM={kind}" if kind else "TERM is not set"
        return f"browse needs a terminal that it can draw on ({told}): {INSTEAD}"
    if reads_stdin and _is_terminal(0):
        return "browse -: nothing is piped into it, as in: tcpdump -U -w - | rpcinspect browse -"
    if not _is_terminal(0) and not _opens(TERMINAL):
        return f"browse reads keys from a terminal, and there is none: {INSTEAD}"
    return None


def _is_terminal(descriptor: int) -> bool:
    stream = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[descriptor]
    try:
        return stream is not None and os.isatty(stream.fileno())
    except (OSError, ValueError):
        return False


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True
