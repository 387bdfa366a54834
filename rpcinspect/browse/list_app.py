"""What apps with a list share: finding text in it, the way back, questions, the palette, how it looks.

In: keys. Out: the cursor of the list is elsewhere, or the screen looks otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual import work
from textual.app import App
from textual.notifications import SeverityLevel

from rpcinspect.browse.lines import LineSource, LinesView
from rpcinspect.browse.screens import AskScreen, TextPrompt
from rpcinspect.browse.terminal import TerminalDriver, stop_with_group
from rpcinspect.fields.phrases import printable

if TYPE_CHECKING:
    from textual.command import Provider

T = TypeVar("T")
BATCH = 2000
"""Lines that are searched at once."""
MAX_HISTORY = 1000


def _palette() -> type[Provider]:
    from rpcinspect.browse.palette import BrowsePalette

    return BrowsePalette


class ListApp(App[int]):
    """An app that is about a list of lines."""

    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_palette}

    def __init__(self) -> None:
        super().__init__()
        self.lines_view = LinesView(id="list")
        """The list."""
        self._wanted = ""
        """The text that is searched."""
        self._before: list[Any] = []
        self._after: list[Any] = []

    def say(self, text: str, severity: SeverityLevel = "information", timeout: float | None = None) -> None:
        """Tells something at the edge of the screen, with what is not plainly visible escaped."""
        self.notify(printable(text), severity=severity, timeout=timeout, markup=False)

    def ask(self, screen: AskScreen[T | None], answered: Callable[[T], object]) -> None:
        """Shows a screen, and hands on what is answered; nothing where it is closed."""

        def closed(answer: T | None) -> None:
            if answer is not None:
                answered(answer)

        self.push_screen(screen, closed)

    # -- the way back

    def here(self) -> Any:
        """Returns the place that is shown, as `put` takes it; None: none is."""
        raise NotImplementedError

    def put(self, place: Any) -> None:
        """Shows a place that `here` returned before."""
        raise NotImplementedError

    def leave(self) -> None:
        """Keeps where one is, for the way back."""
        here = self.here()
        if here is not None:
            self._before.append(here)
            del self._before[:-MAX_HISTORY]
            self._after.clear()

    def action_travel(self, by: int) -> None:
        """Goes to where one was before, or on to where one came back from."""
        where, other = (self._before, self._after) if by < 0 else (self._after, self._before)
        if not where:
            self.bell()
            return
        here = self.here()
        if here is not None:
            other.append(here)
        self.put(where.pop())

    # -- finding text

    def action_find(self) -> None:
        """Asks for a text and goes to the next line that has it."""

        def answered(text: str) -> None:
            if text:
                self._wanted = text
                self.action_again(1)

        self.ask(TextPrompt("find text in the list", self._wanted), answered)

    def action_again(self, by: int) -> None:
        """Goes to the next line with the text that was searched, or to the one before; asks for it first."""
        if self._wanted:
            self._find(self._wanted, by)
        else:
            self.action_find()

    @work(thread=True, exclusive=True, group="find", exit_on_error=False)
    def _find(self, wanted: str, by: int) -> None:
        lines, cursor = self.lines_view.lines, self.lines_view.cursor
        at = find_text(lines, wanted, cursor, by)
        self.call_from_thread(self._found, lines, wanted, at)

    def _found(self, lines: LineSource, wanted: str, at: int | None) -> None:
        if at is None:
            self.say(f"no other line has {printable(wanted)!r}")
        elif lines is self.lines_view.lines:
            self.lines_view.move_to(at, middle=True)

    # -- the screen

    def action_suspend_process(self) -> None:
        """Goes to the shell, until `fg`."""
        if isinstance(self._driver, TerminalDriver):
            stop_with_group()

    def action_maximise(self) -> None:
        """Gives the pane one is in the whole screen, or takes it back."""
        if self.screen.maximized is not None:
            self.screen.minimize()
        elif self.focused is not None:
            self.screen.maximize(self.focused)

    def action_theme(self) -> None:
        """Changes between light and dark."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"


def find_text(lines: LineSource, wanted: str, cursor: int, by: int) -> int | None:
    """Returns the place of the next line with a text, going round at the end; upper and lower case are the
    same. None where no other line has it."""
    count, text = len(lines), wanted.casefold()
    order: Sequence[int] = [(cursor + by * step) % count for step in range(1, count)]
    for first in range(0, len(order), BATCH):
        some = order[first : first + BATCH]
        for at, line in zip(some, lines.texts(some), strict=True):
            if text in line.casefold():
                return at
    return None
