"""`python -m rpcinspect` and the command `rpcinspect`: the command line, and Ctrl-C while it is imported."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Runs the command line; see `rpcinspect.cli`."""
    gc.disable()  # until a command has loaded what it needs: see cli/collector.py
    try:
        from rpcinspect.cli import main as command_line
    except KeyboardInterrupt:  # from here on the command line deals with it itself
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
