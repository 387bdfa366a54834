"""The line with the names of the views; the one that is shown stands out, and a click shows another."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

BETWEEN = 2


class ViewBar(Widget):
    """Names with the keys that show them; a click is the app's action `view`."""

    DEFAULT_CSS = "ViewBar { height: 1; }"
    auto_links = reactive(False)
    chosen: reactive[str] = reactive("")

    def __init__(self, names: Mapping[str, str]) -> None:
        """`names` of all views, with what they are called where there is little room."""
        super().__init__()
        self._names = names

    def render(self) -> Text:
        """Makes the line."""
        room = self.size.width - sum(map(len, self._names)) - 2 * len(self._names)
        between = BETWEEN if room >= BETWEEN * len(self._names) else 1
        short = room < len(self._names)
        text = Text(no_wrap=True, overflow="ellipsis")
        for number, (name, brief) in enumerate(self._names.items(), 1):
            label = f"{number % 10} {brief if short and name != self.chosen else name}"
            look = Style(bold=True, reverse=True) if name == self.chosen else Style()
            text.append(" " * between if text else "")
            text.append(label, look + Style(meta={"@click": f"app.view('{name}')"}))
        return text
