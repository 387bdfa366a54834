"""The terminal while an app has it: where keys come from, what it can show, how it is left.

In: an app. Out: its exit code, and the terminal as it was, also where a signal ends it or the connection is
lost. Textual's own driver reads standard input, which may be a capture, and writes to standard error, which
may be a file; it dies of a terminal that is gone.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from rpcinspect.browse.ascii import as_ascii, shows_ascii_only
from rpcinspect.browse.full_screen import TERMINAL

LOOK_S = 0.5
"""How often it is looked whether the terminal is still there: not every system sends a signal."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_BASE = 128
GONE = EXIT_BASE + signal.SIGHUP


class TerminalText:
    """What is written to the terminal, for as long as that is there."""

    def __init__(self, file: TextIO, changed: Callable[[str], str]) -> None:
        self._file = file
        self._changed = changed

    def write(self, text: str) -> int:
        """Writes; nobody hears of a terminal that is gone but through `is_there`."""
        try:
            self._file.write(self._changed(text))
        except OSError:
            return 0
        return len(text)

    def flush(self) -> None:
        """Writes what was held back."""
        with suppress(OSError):  # the signal, or the next look, ends the app
            self._file.flush()

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._file.fileno()


class TerminalDriver(LinuxDriver):
    """Draws on the terminal and takes its keys, wherever the standard streams lead."""

    def __init__(self, app: App[Any], **how: Any) -> None:
        super().__init__(app, **how)
        out = sys.__stderr__ if sys.__stderr__ is not None and sys.__stderr__.isatty() else sys.__stdout__
        assert out is not None
        self._file = TerminalText(out, as_ascii if shows_ascii_only() else str)  # type: ignore[assignment]
        self._own: int | None = None
        if not self.input_tty:
            self._own = self.fileno = os.open(TERMINAL, os.O_RDWR | os.O_CLOEXEC)
            self.input_tty = True

    @property
    def is_there(self) -> bool:
        """Whether the terminal is."""
        waiting = select.poll()
        waiting.register(self.fileno, select.POLLIN)
        return not any(
            events & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, events in waiting.poll(0)
        )

    def _sigtstp_application(self, *_: Any) -> None:
        """Leaves the terminal and stops, between two steps of the app: Textual would do it in the middle of
        one, which may hold the lock of what is to be written."""
        self._loop.call_soon_threadsafe(super()._sigtstp_application)

    def _sigcont_application(self, *_: Any) -> None:
        """Does the same with going on; a terminal that hangs up sends this signal, too."""
        self._loop.call_soon_threadsafe(super()._sigcont_application)

    def resume_application_mode(self) -> None:
        """Takes the terminal again and draws everything anew: others have written there meanwhile."""
        if not self.is_there:
            return
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()  # stopped by a signal that nobody hears of
        super().resume_application_mode()
        self._loop.call_soon_threadsafe(self._draw_anew)

    def _draw_anew(self) -> None:
        for screen in self._app.screen_stack:
            screen.refresh(layout=True)
            for shown in screen.walk_children():
                shown.refresh()

    def run_input_thread(self) -> None:
        """Takes keys, until the terminal is gone at the latest."""
        try:
            super().run_input_thread()
        except OSError:
            if self.is_there:
                raise


def run_in_terminal(app: App[int]) -> int:
    """Shows an app; returns its exit code, 128 + n where signal n ended it."""
    app.driver_class = TerminalDriver
    theme = _theme()
    if theme is not None:
        app.theme = theme

    async def show() -> int:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, app.exit, EXIT_BASE + number)
        watching = loop.create_task(_watch(app))
        try:
            code = await app.run_async()
        finally:
            watching.cancel()
        return app.return_code or 0 if code is None else code

    loop = asyncio.new_event_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(show())  # `asyncio.run` would wait for answers that nobody awaits now
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        for number, handler in before.items():
            signal.signal(number, handler)


async def _watch(app: App[int]) -> None:
    """Ends the app once its terminal is gone."""
    while True:
        await asyncio.sleep(LOOK_S)
        driver = app._driver
        if isinstance(driver, TerminalDriver) and not driver.is_there:
            app.exit(GONE)
            return


def stop_with_group() -> None:
    """Sends what Ctrl-Z sends: everything in the pipeline that we are part of stops, so that the shell has
    the terminal again."""
    os.killpg(0, signal.SIGTSTP)


def _theme() -> str | None:
    """Returns the theme for the terminal's background, where that is told; None: it is not."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    if not background.isdecimal():
        return None
    return "textual-light" if int(background) in (7, 15) else "textual-dark"
