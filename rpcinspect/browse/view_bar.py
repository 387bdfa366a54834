"""The line with the names of the views; the one that is shown stands out, and a click shows another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

BETWEEN = 2


class ViewBar(Widget):
    """Names with the keys that show them."""

    DEFAULT_CSS = "ViewBar { height: 1; }"
    chosen: reactive[str] = reactive("")

    class Chosen(Message):
        """A view is to be shown."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, names: Sequence[str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._names = names

    def _labels(self) -> Iterator[tuple[int, str, str]]:
        """Yields where each label begins, the label, and the name of its view."""
        at, short = 0, False
        long = sum(len(name) + 2 + BETWEEN for name in self._names)
        short = long > max(1, self.size.width)
        for number, name in enumerate(self._names, 1):
            shown = name if not short or name == self.chosen else name[:5]
            label = f"{number % 10} {shown}"
            yield at, label, name
            at += len(label) + BETWEEN

    def render(self) -> Text:
        """Makes the line."""
        text = Text(no_wrap=True, overflow="ellipsis")
        for _, label, name in self._labels():
            text.append(label, "bold reverse" if name == self.chosen else "")
            text.append(" " * BETWEEN)
        return text

    def on_click(self, event: events.Click) -> None:
        """Shows the view whose name was clicked."""
        for at, label, name in self._labels():
            if at <= event.x < at + len(label):
                self.post_message(self.Chosen(name))
