"""`python -m rpcinspect` and the command `rpcinspect`: the command line, and Ctrl-C while it is imported."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Runs the command line and ends the process; see `rpcinspect.cli`."""
    gc.disable()  # until a command has loaded what it needs: see cli/collector.py
    try:
        from rpcinspect.cli import main as command_line
        from rpcinspect.cli.ending import end_soon
    except KeyboardInterrupt:  # from here on the command line deals with it itself
        sys.exit(130)
    try:
        command_line()
    except SystemExit as ended:
        end_soon(ended.code)
        raise


if __name__ == "__main__":
    main()
