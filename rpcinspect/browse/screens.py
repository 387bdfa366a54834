"""What is asked in between: which of several messages, a line of text, help.

In: what to choose from, or a question. Out: what was chosen; None where it was given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from rich.console import RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from rpcinspect.browse.lines import LinesView, ListLine
from rpcinspect.browse.plain_input import PlainInput

T = TypeVar("T")
CLOSE = [Binding("escape,q", "give_up", "close")]


class AskScreen(ModalScreen[T]):
    """A screen that answers once, however often enter was pressed."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Answers; does nothing where that was done."""
        return super().dismiss(result) if self.is_active else AwaitComplete.nothing()  # type: ignore[no-untyped-call]


class ChoiceLines:
    """Lines to choose from."""

    def __init__(self, lines: Sequence[ListLine]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, at: int, width: int) -> ListLine:
        """Returns a line."""
        return self._lines[at]

    def header(self, width: int) -> str:
        """There is none."""
        return ""


class Chooser(AskScreen[int | None]):
    """Asks which of several lines."""

    BINDINGS: ClassVar[list[BindingType]] = [*CLOSE]
    DEFAULT_CSS = """
    Chooser { align: center middle; }
    Chooser > Vertical { width: 90%; max-width: 110; height: auto; max-height: 80%; border: round $primary;
        background: $surface; }
    Chooser Static { height: 1; text-style: bold; }
    Chooser LinesView { height: auto; max-height: 20; }
    """

    def __init__(self, title: str, lines: Sequence[ListLine]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Makes a title and a list."""
        with Vertical():
            yield Static(Text(self._title, no_wrap=True, overflow="ellipsis"))
            view = LinesView(ChoiceLines(self._lines))
            view.styles.height = min(20, max(1, len(self._lines)))
            yield view

    def on_lines_view_chosen(self, event: LinesView.Chosen) -> None:
        """Answers."""
        event.stop()
        self.dismiss(event.at)

    def on_lines_view_moved(self, event: LinesView.Moved) -> None:
        """Keeps what happens here from the screen below."""
        event.stop()

    def action_give_up(self) -> None:
        """Answers nothing."""
        self.dismiss(None)


class TextPrompt(AskScreen[str | None]):
    """Asks for a line of text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "close")]
    DEFAULT_CSS = """
    TextPrompt { align: center bottom; }
    TextPrompt > Vertical { height: 3; background: $surface; border-top: solid $primary; }
    TextPrompt Static { height: 1; text-style: bold; }
    TextPrompt Input, TextPrompt Input:focus { height: 1; border: none; padding: 0; background: $surface; }
    """

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """Makes a title and a line."""
        with Vertical():
            yield Static(Text(self._title, no_wrap=True, overflow="ellipsis"))
            yield PlainInput(self._text, select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answers."""
        event.stop()
        self.dismiss(event.value)

    def action_give_up(self) -> None:
        """Answers nothing."""
        self.dismiss(None)


class HelpScreen(AskScreen[None]):
    """Shows the keys of the pane that one is in, and those that work everywhere."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "give_up", "close")]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll { width: 90%; max-width: 100; height: auto; max-height: 90%;
        border: round $primary; background: $surface; padding: 0 1; }
    """

    def __init__(self, text: RenderableType) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Makes the text."""
        with VerticalScroll():
            yield Static(self._text)

    def action_give_up(self) -> None:
        """Closes it."""
        self.dismiss(None)
