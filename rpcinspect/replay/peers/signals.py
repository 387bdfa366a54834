"""Signals that would end this process, held back while it is a member of somebody else's group.

In: signals of the process. Out: the same signals, at moments at which nothing is half done. An exception of
a signal may come between any two instructions, also between taking a group's token and noting that it was
taken. While they are held, a signal is only noted; `check` lets it do what it would have done, and is called
where that may be. While leaving, not even there.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class HeldSignals:
    """Use it in a `with` statement. Only signals that Python handles are held: those that end the process at
    once do so. Elsewhere than in the main thread there are none to hold.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._waiting: list[int] = []
        self._quiet = 0

    def check(self, _: float = 0.0) -> None:
        """Lets what came meanwhile take effect: most raise an exception. A timer of a loop may call it."""
        if self._waiting and not self._quiet:
            number = self._waiting.pop(0)
            self._before[number](number, None)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Nothing takes effect in here."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def __enter__(self) -> HeldSignals:
        if threading.current_thread() is threading.main_thread():
            for name in NAMES:
                number = getattr(signal, name, None)
                if number is not None and callable(signal.getsignal(number)):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if error is None or isinstance(error, Exception):  # otherwise something ends us already
            self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number not in self._waiting:
            self._waiting.append(number)
