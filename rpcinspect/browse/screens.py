"""What is asked in between: which of several messages, a line of text, help.

In: what to choose from, or a question. Out: what was chosen; None where it was given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from rich.console import RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from rpcinspect.browse.lines import FixedLines, LinesView, ListLine

if TYPE_CHECKING:
    from rpcinspect.browse.export_forms import PasteLine

T = TypeVar("T")


class AskScreen(ModalScreen[T]):
    """A screen that answers once, however often enter was pressed; closed it answers None."""

    DEFAULT_CSS = "AskScreen { align: center middle; }"

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Answers; does nothing where that was done."""
        return super().dismiss(result) if self.is_active else AwaitComplete.nothing()  # type: ignore[no-untyped-call]


class Chooser(AskScreen[int | None]):
    """Asks which of several lines."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "close")]
    DEFAULT_CSS = """
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
            yield self._list()

    def _list(self) -> LinesView:
        view = LinesView(FixedLines(self._lines))
        view.styles.height = min(20, max(1, len(self._lines)))
        return view

    def on_lines_view_chosen(self, event: LinesView.Chosen) -> None:
        """Answers."""
        self.dismiss(event.at)


class PasteScreen(Chooser):
    """Shows what each of some command lines does, and the one under the cursor in full: to copy it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "copy", "copy")]
    DEFAULT_CSS = """
    PasteScreen > Vertical { width: 95%; max-width: 140; max-height: 95%; }
    PasteScreen .title { height: auto; }
    PasteScreen #command { height: auto; max-height: 12; margin-top: 1; padding: 0 1; text-style: none; }
    """

    def __init__(self, title: str, commands: Sequence[PasteLine]) -> None:
        super().__init__(title, [ListLine(one.about) for one in commands])
        self._commands = commands

    def compose(self) -> ComposeResult:
        """Makes a title, a list, and a place for a command."""
        with Vertical():
            yield Static(Text(self._title), classes="title")
            yield self._list()
            yield Static(self._commands[0].text, id="command", markup=False)

    def on_lines_view_moved(self, event: LinesView.Moved) -> None:
        """Shows another command."""
        self.query_one("#command", Static).update(self._commands[event.at].text)

    def action_copy(self) -> None:
        """Answers with the command under the cursor."""
        self.query_one(LinesView).action_choose()


class PlainInput(Input):
    """A line to type into that holds what is plainly visible only: Textual would send control characters, and
    marks that turn text round, to the terminal as they are."""

    DEFAULT_CSS = """
    PlainInput, PlainInput:focus { height: 1; border: none; padding: 0; background: $surface; }
    """

    def validate_value(self, value: str) -> str:
        """Returns a value without what is not visible."""
        return value if value.isprintable() else "".join(filter(str.isprintable, value))


class TextPrompt(AskScreen[str | None]):
    """Asks for a line of text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "close")]
    DEFAULT_CSS = """
    TextPrompt { align: center bottom; }
    TextPrompt > Vertical { height: 3; background: $surface; border-top: solid $primary; }
    TextPrompt Static { height: 1; text-style: bold; }
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


class HelpScreen(AskScreen[None]):
    """Shows the keys of the pane that one is in, and those that work everywhere."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,?,enter", "dismiss", "close")]
    DEFAULT_CSS = """
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
