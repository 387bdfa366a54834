"""The one place where errors become a line and an exit code.

In: a command. Out: its exit code; nothing that goes wrong shows a traceback, unless RPCINSPECT_DEBUG is set.
"""

import os
from collections.abc import Callable

from rpcinspect import exit_codes
from rpcinspect.errors import CaptureError, OutputError, RpcInspectError
from rpcinspect.unexpected import DEBUG, fault


def guarded(command: Callable[[], int]) -> int:
    """The command's exit code; errors become one line on stderr and a code."""
    from rpcinspect.commands.output import give_up_stdout, say
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
    except RpcInspectError as error:
        say(str(error))
        return exit_codes.USAGE
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
