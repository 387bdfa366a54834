"""Ctrl-C that is heard wherever Python was when it was pressed.

Python raises `KeyboardInterrupt` between any two instructions of the main thread. Inside a callback of a weak
reference, of the garbage collector or a `__del__` there is nobody to raise it to: Python prints "Exception
ignored in" and goes on, and the press is lost. The same is true of the `SystemExit` into which a handler has
turned SIGTERM.

In: code that runs in the main thread. Out: the same code, to which a signal that was lost in this way is sent
again until it is heard. Whichever handler the signal has by then, gets it; a wait in the system ends by it.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_S = 0.01
"""How long after it was lost a signal is sent again: the callback that lost it is over by then."""
EXIT_BASE = 128
"""The exit code of a program that a signal ends, less the number of the signal."""


@contextmanager
def never_lost() -> Iterator[None]:
    """Within it a `KeyboardInterrupt`, or the `SystemExit` of a signal, that Python could not raise comes
    again. Elsewhere than in the main thread, where no signal arrives, it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = sys.unraisablehook
    lost: list[int] = []

    def note(unraisable: UnraisableHookArgs) -> None:
        number = _signal_of(unraisable.exc_value)
        if number is None or threading.current_thread() is not threading.main_thread():
            before(unraisable)
        else:
            lost.append(number)
            # No `threading.Thread`: that takes a lock which whoever was interrupted may hold.
            _thread.start_new_thread(_send_again, (lost,))

    sys.unraisablehook = note
    try:
        yield
    finally:
        sys.unraisablehook = before
        left, lost[:] = lost[:], []
        error = sys.exc_info()[1]
        if left and (error is None or isinstance(error, Exception)):  # otherwise something ends us already
            signal.raise_signal(left[0])


def _signal_of(error: BaseException | None) -> int | None:
    """The signal whose handler raised an exception; None: no handler did."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code > EXIT_BASE:
        return error.code - EXIT_BASE
    return None


def _send_again(lost: list[int]) -> None:
    """Sends the main thread what it has lost, unless that has happened meanwhile."""
    time.sleep(AGAIN_S)
    try:
        number = lost.pop()
    except IndexError:
        return
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)  # so that its wait in the system ends, too
