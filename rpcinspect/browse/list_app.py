"""What apps with a list share: finding text in it, the palette, one pane on the whole screen, light or dark.

In: keys. Out: the cursor of the list is elsewhere, or the screen looks otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App

from rpcinspect.browse.find import find_text
from rpcinspect.browse.lines import LineSource, LinesView
from rpcinspect.browse.screens import TextPrompt
from rpcinspect.browse.terminal import TerminalDriver, stop_with_group
from rpcinspect.fields.phrases import printable

if TYPE_CHECKING:
    from textual.command import Provider


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

    def action_find(self) -> None:
        """Asks for a text and goes to the next line that has it."""

        def answered(text: str | None) -> None:
            if text:
                self._wanted = text
                self.action_again(1)

        self.push_screen(TextPrompt("find text in the list", self._wanted), answered)

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
            self.notify(f"no other line has {printable(wanted)!r}", markup=False)
        elif lines is self.lines_view.lines:
            self.lines_view.move_to(at, middle=True)

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
