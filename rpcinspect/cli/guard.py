"""The one place where errors become a line and an exit code.

In: a command. Out: its exit code; nothing that goes wrong shows a traceback, unless RPCINSPECT_DEBUG is set.
"""

import os
from collections.abc import Callable

from rpcinspect import exit_codes
from rpcinspect.errors import CaptureError, CommandError, FilterError, OutputError, RpcInspectError
from rpcinspect.unexpected import DEBUG, fault


class UsageMistake(RpcInspectError):
    """Options that can't be carried out; the text says why in one line."""


def guarded(command: Callable[[], int]) -> int:
    """Returns the command's exit code; errors become one line on stderr and a code."""
    from rpcinspect.cli.blas import load_numpy

    load_numpy()
    from rpcinspect.cli.output import give_up_stdout, say, say_block
    from rpcinspect.files.temporary import temporary_folder
    from rpcinspect.signals import never_lost

    try:
        with never_lost():
            return command()
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except OutputError as error:
        give_up_stdout()
        say(str(error))
        return exit_codes.USAGE
    except CaptureError as error:
        say(str(error))
        return exit_codes.UNREADABLE
    except FilterError as error:
        say_block(pointed(error))
        return exit_codes.USAGE
    except RpcInspectError as error:
        say(str(error))
        return error.code if isinstance(error, CommandError) else exit_codes.USAGE
    except Exception as error:
        if isinstance(error, OSError):
            try:
                temporary_folder()  # most commands need one, in a dozen places
            except OutputError as full:
                say(str(full))
                return exit_codes.USAGE
        if os.environ.get(DEBUG):
            raise
        say(fault(error))
        return exit_codes.FAULT


AROUND = 60
"""Characters of a filter that are shown on either side of a mistake."""


def pointed(error: FilterError) -> str:
    """Returns what is wrong, the filter, and marks below the place."""
    from rich.cells import cell_len

    low = max(0, error.start - AROUND)
    high = min(len(error.text), error.start + AROUND)
    text = "".join(c if c.isprintable() else " " for c in error.text)
    before = ("…" if low else "") + text[low : error.start]
    after = text[error.start : high] + ("…" if high < len(text) else "")
    marked = text[error.start : min(error.end, high)]
    return f"-f: {error.reason}\n{before}{after}\n{' ' * cell_len(before)}{'^' * max(1, cell_len(marked))}"
