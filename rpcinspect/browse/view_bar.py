"""The line with the names of the views; the one that is shown stands out, and a click shows another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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

    def __init__(self, names: Mapping[str, str], *, id: str | None = None) -> None:
        """`names` of all views, with what they are called where there is little room."""
        super().__init__(id=id)
        self._names = names

    def _labels(self) -> Iterator[tuple[int, str, str]]:
        """Yields where each label begins, the label, and the name of its view."""
        at = 0
        long = sum(map(len, self._names)) + 2 * len(self._names)
        room = self.size.width - long
        between = BETWEEN if room >= BETWEEN * len(self._names) else 1
        short = room < len(self._names)
        for number, (name, brief) in enumerate(self._names.items(), 1):
            label = f"{number % 10} {brief if short and name != self.chosen else name}"
            yield at, label, name
            at += len(label) + between

    def render(self) -> Text:
        """Makes the line."""
        text = Text(no_wrap=True, overflow="ellipsis")
        for at, label, name in self._labels():
            text.append(" " * (at - len(text)))
            text.append(label, "bold reverse" if name == self.chosen else "")
        return text

    def on_click(self, event: events.Click) -> None:
        """Shows the view whose name was clicked."""
        for at, label, name in self._labels():
            if at <= event.x < at + len(label):
                self.post_message(self.Chosen(name))
