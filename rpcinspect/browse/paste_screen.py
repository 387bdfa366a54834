"""A window of command lines to copy.

In: command lines. Out: the one that was chosen, for the clipboard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from rpcinspect.browse.export_forms import PasteLine
from rpcinspect.browse.lines import LinesView, ListLine
from rpcinspect.browse.screens import CLOSE, AskScreen, ChoiceLines


class PasteScreen(AskScreen[str | None]):
    """Shows what each command does, and the one under the cursor in full; enter takes that."""

    BINDINGS: ClassVar[list[BindingType]] = [*CLOSE, Binding("y", "copy", "copy")]
    DEFAULT_CSS = """
    PasteScreen { align: center middle; }
    PasteScreen > Vertical { width: 95%; max-width: 140; height: auto; max-height: 95%;
        border: round $primary; background: $surface; }
    PasteScreen .title { height: auto; text-style: bold; }
    PasteScreen #command { height: auto; max-height: 12; margin-top: 1; padding: 0 1; }
    """

    def __init__(self, title: str, lines: Sequence[PasteLine]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Makes a title, a list, and a place for a command."""
        with Vertical():
            yield Static(Text(self._title), classes="title")
            view = LinesView(ChoiceLines([ListLine(one.about) for one in self._lines]))
            view.styles.height = len(self._lines)
            yield view
            yield Static(Text(self._lines[0].text), id="command")

    @on(LinesView.Moved)
    def _moved(self, event: LinesView.Moved) -> None:
        event.stop()
        self.query_one("#command", Static).update(Text(self._lines[event.at].text))

    @on(LinesView.Chosen)
    def _chosen(self, event: LinesView.Chosen) -> None:
        event.stop()
        self.dismiss(self._lines[event.at].text)

    def action_copy(self) -> None:
        """Answers with the command under the cursor."""
        self.dismiss(self._lines[self.query_one(LinesView).cursor].text)

    def action_give_up(self) -> None:
        """Answers nothing."""
        self.dismiss(None)
