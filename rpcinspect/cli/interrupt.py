"""Signals while messages are shown as they come. Ctrl-C ends the reading, and what was read is still shown; a
second press ends everything. A signal that ends us (`| head` has seen enough) ends a live capture too.

In: a decoding. Out: whether the key was pressed.

And for a few steps that belong together, Ctrl-C is held back.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rpcinspect.pipeline import Decoding

_FATAL = tuple(getattr(signal, name) for name in ("SIGPIPE", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupt:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.pressed = False


@contextmanager
def ends_reading(decoding: Decoding) -> Iterator[Interrupt]:
    """Returns a context in which the first Ctrl-C stops reading; the next raises `KeyboardInterrupt`."""
    interrupt = Interrupt()

    def stop(number: int, frame: FrameType | None) -> None:
        if interrupt.pressed:
            raise KeyboardInterrupt
        interrupt.pressed = True
        decoding.stop()

    def give_up(number: int, frame: FrameType | None) -> None:
        decoding.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    with _handled({signal.SIGINT: stop} | dict.fromkeys(_fatal(), give_up)):
        yield interrupt


@contextmanager
def held_back() -> Iterator[None]:
    """Returns a context in which Ctrl-C waits until the end."""
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True

    with _handled({signal.SIGINT: note}):
        yield
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def ends_as_exits() -> Iterator[None]:
    """While we talk to live workers: one that ends must not end us, as `| head` does when it has seen enough.
    What ends us otherwise leaves the terminal, and a group that we joined, as it was.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ignored = {signal.SIGPIPE: signal.SIG_IGN} if hasattr(signal, "SIGPIPE") else {}
    with _handled(dict.fromkeys(_fatal(), leave) | ignored):
        yield


def _fatal() -> list[int]:
    """Signals that would end us; nohup ignores some."""
    return [number for number in _FATAL if signal.getsignal(number) == signal.SIG_DFL]


@contextmanager
def _handled(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Returns a context in which signals have these handlers."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
