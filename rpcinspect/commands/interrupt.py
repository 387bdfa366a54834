"""Ctrl-C while messages are shown as they come: it ends the reading, and what was read is still shown.

In: a decoding. Out: whether the key was pressed. A second press ends everything.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rpcinspect.pipeline import Decoding


class Interrupt:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.pressed = False


@contextmanager
def ends_reading(decoding: Decoding) -> Iterator[Interrupt]:
    """Within it, the first Ctrl-C stops the decoding's reading; the next raises `KeyboardInterrupt`."""
    interrupt = Interrupt()

    def stop(number: int, frame: FrameType | None) -> None:
        if interrupt.pressed:
            raise KeyboardInterrupt
        interrupt.pressed = True
        decoding.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
