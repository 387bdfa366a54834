"""The one place where errors become a line and an exit code.

In: a command. Out: its exit code; nothing that is expected to go wrong shows a traceback.
"""

from collections.abc import Callable

from rpcinspect import exit_codes
from rpcinspect.errors import CaptureError, OutputError, RpcInspectError


def guarded(command: Callable[[], int]) -> int:
    """The command's exit code; expected errors become one line on stderr and a code."""
    from rpcinspect.commands.output import give_up_stdout, say
    from rpcinspect.files.temporary import temporary_folder

    try:
        return command()
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
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except OSError:
        try:
            temporary_folder()  # most commands need one, in a dozen places
        except OutputError as error:
            say(str(error))
            return exit_codes.USAGE
        raise
