"""The line at the foot of the screen: the keys of the pane one is in, and what they do; a click presses one.

In: the bindings of the screen. Out: one line. Textual's own footer makes a widget for each key, which takes
as long as everything else that the first screen needs.
"""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

HELP = "help"
"""The action of the key that stays at the right end, however narrow the line is."""


class KeyLine(Widget):
    """Keys with their names."""

    auto_links = reactive(False)
    COMPONENT_CLASSES: ClassVar[set[str]] = {"key-line--key"}
    DEFAULT_CSS = """
    KeyLine { dock: bottom; height: 1; color: $footer-foreground; background: $footer-background; }
    KeyLine > .key-line--key { color: $footer-key-foreground; text-style: bold; }
    """

    def on_mount(self) -> None:
        """Hears of other keys: another pane has the focus."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, _: Screen[object]) -> None:
        self.refresh()

    def _shown_bindings(self) -> list[Binding]:
        """Returns one binding for each action that is to be seen, that of the help last; of keys that would
        be typed into a line of text none."""
        focused = self.app.focused
        types = focused is not None and focused.check_consume_key("x", "x")
        shown: dict[str, Binding] = {}
        for _, binding, is_enabled, _ in self.screen.active_bindings.values():
            is_typed = types and len(self.app.get_key_display(binding)) == 1
            if binding.show and is_enabled and not is_typed:
                shown.setdefault(binding.action, binding)
        if HELP in shown:
            shown[HELP] = shown.pop(HELP)
        return list(shown.values())

    def _label(self, binding: Binding) -> Text:
        style = self.get_component_rich_style("key-line--key", partial=True)
        click = Style(meta={"@click": f"app.simulate_key('{binding.key}')"})
        key = self.app.get_key_display(binding)
        return Text.assemble((f" {key}", style + click), (f" {binding.description}", click))

    def render(self) -> Text:
        """Returns the keys and what they do, with the keys in their colour; what has no room is left out."""
        shown = self._shown_bindings()
        help_ = [self._label(one) for one in shown if one.action == HELP]
        room = self.size.width - sum(len(label) + 1 for label in help_)
        text = Text(no_wrap=True, overflow="ellipsis")
        for label in map(self._label, shown[: len(shown) - len(help_)]):
            between = " " if text else ""
            if len(text) + len(between) + len(label) >= room:
                break
            text.append(between).append_text(label)
        for label in help_:
            text.append(" " * (room - len(text))).append_text(label)
        return text
