"""The line in which a filter is typed, in the language of `-f`: valid or not, what may stand next, history.

In: keys, and a capture that is being read. Out: messages: another filter, none, or given up. The
language is loaded when the line is opened: the first screen need not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from rpcinspect.browse.screens import PlainInput
from rpcinspect.errors import FilterError
from rpcinspect.fields.phrases import printable

if TYPE_CHECKING:
    from rpcinspect.browse.completion import FilterCompletion
    from rpcinspect.browse.growing_run import GrowingRun
    from rpcinspect.filter.selection import Filter

MAX_HISTORY = 100


class FilterLine(Vertical):
    """A line for a filter with a line of hints above it; hidden until `open` is called."""

    DEFAULT_CSS = """
    FilterLine { height: 2; display: none; }
    FilterLine.open { display: block; }
    FilterLine #hints { height: 1; color: $text-muted; }
    FilterLine #hints.wrong { color: $error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "close"),
        Binding("tab", "complete", "complete", priority=True),
        Binding("up", "older(1)", "older", show=False),
        Binding("down", "older(-1)", "newer", show=False),
    ]

    class Chosen(Message):
        """A filter is to be used; None: all messages are shown again."""

        def __init__(self, chosen: Filter | None) -> None:
            super().__init__()
            self.chosen = chosen

    class GivenUp(Message):
        """The line was closed."""

    def __init__(self, reading: GrowingRun) -> None:
        super().__init__(id="filter")
        self._reading = reading
        self.history: list[str] = []
        self._at = 0
        """How far back in the history, from 1; 0 is the text that is being typed."""
        self._typed = ""

    def compose(self) -> ComposeResult:
        """Makes the two lines."""
        yield Static(id="hints", markup=False)
        yield PlainInput(
            placeholder='filter, such as: call ~ "forward" and latency > 50ms', select_on_focus=False
        )

    @property
    def _input(self) -> Input:
        return self.query_one(Input)

    def open(self, text: str = "") -> None:
        """Shows the line with a text to go on with."""
        self.add_class("open")
        self._at, self._typed = 0, text
        self._set(text)
        self._input.focus()
        self._hint(text)

    def close(self) -> None:
        """Hides the line in which a filter is typed."""
        self.remove_class("open")

    def _set(self, text: str) -> None:
        self._input.value = text
        self._input.cursor_position = len(text)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._hint(event.value)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip()
        if not text:
            self.close()
            self.post_message(self.Chosen(None))
            return
        from rpcinspect.filter.grammar import parse
        from rpcinspect.filter.selection import Filter

        try:
            chosen = Filter(parse(text), text)
        except FilterError as error:
            self._tell(_why(error), wrong=True)
            self._input.cursor_position = error.start
            return
        self.history = [text, *(one for one in self.history if one != text)][:MAX_HISTORY]
        self.close()
        self.post_message(self.Chosen(chosen))

    def _completion(self) -> FilterCompletion:
        from rpcinspect.browse.completion import complete, values_of

        return complete(self._input.value[: self._input.cursor_position], values_of(self._reading))

    def _hint(self, text: str) -> None:
        """Says whether the text is a filter, and what may stand next."""
        from rpcinspect.filter.grammar import parse

        completion = self._completion()
        words = "  ".join(completion.words)
        if not text.strip():
            self._tell(f"tab completes: {words}")
            return
        try:
            parse(text)
        except FilterError as error:
            begun = completion.start if words else len(text)
            if error.start >= min(begun, len(text.rstrip())):
                self._tell(f"… {words or _why(error)}")
            else:
                self._tell(_why(error), wrong=True)
        else:
            self._tell(f"✓ enter shows what matches  {words}")

    def _tell(self, what: str, *, wrong: bool = False) -> None:
        hints = self.query_one("#hints", Static)
        hints.set_class(wrong, "wrong")
        hints.update(Text(f"✗ {what}" if wrong else what, no_wrap=True, overflow="ellipsis"))

    def action_complete(self) -> None:
        """Puts the first word that fits into the text."""
        found = self._completion()
        if found.words:
            value, cursor = self._input.value, self._input.cursor_position
            self._input.value = f"{value[: found.start]}{found.words[0]} {value[cursor:].lstrip()}"
            self._input.cursor_position = found.start + len(found.words[0]) + 1

    def action_older(self, by: int) -> None:
        """Goes back in the history, or forth."""
        if not self._at:
            self._typed = self._input.value
        self._at = max(0, min(self._at + by, len(self.history)))
        self._set(self.history[self._at - 1] if self._at else self._typed)

    def action_give_up(self) -> None:
        """Closes the line; the filter stays what it was."""
        self.close()
        self.post_message(self.GivenUp())


def _why(error: FilterError) -> str:
    return printable(f"{error.reason} (at character {error.start + 1})")
