"""The command that installs what is optional into the environment that runs: its own Python's pip."""

from __future__ import annotations

import shlex
import sys


def pip_install(what: str) -> str:
    """That command for the shell, with these requirements and options."""
    return f"{shlex.quote(sys.executable)} -m pip install {what}"
