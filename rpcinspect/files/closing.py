"""What is closed at the end of a `with` statement: the same few lines for all that has a `close`."""

from __future__ import annotations

import sys
import threading
from typing import TypeVar

LAST_S = 1.0
"""For a thread whose end is waited for while a signal ends this process."""

T = TypeVar("T", bound="Closing")


class Closing:
    """Base of classes with a `close` that may be called again: makes them context managers."""

    def close(self) -> None:
        """Gives up whatever is held."""
        raise NotImplementedError

    @staticmethod
    def join(thread: threading.Thread) -> None:
        """Waits for the end of a thread that writes; not for long where a signal ends this process: nobody
        may be there who reads."""
        error = sys.exc_info()[1]
        thread.join(None if error is None or isinstance(error, Exception) else LAST_S)

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
