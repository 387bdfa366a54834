"""What keys do, in words and in groups: for the help, and for the palette of all commands.

In: the app, and the pane one is in. Out: the bindings of both with what they do, so that none is forgotten: a
view and a move tell it themselves, of any other action the first sentence of its docstring tells it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from textual.binding import Binding
from textual.screen import Screen

from rpcinspect.browse.moves import MOVES
from rpcinspect.browse.views import BY_NAME

if TYPE_CHECKING:
    from textual.app import App
    from textual.dom import DOMNode

GROUPS = {
    "Views": ("view", "every"),
    "Go to": ("move", "go", "travel_back", "travel_forward"),
    "Find": ("filter", "find", "again"),
    "Marks, notes, export": ("mark", "next_mark", "comment", "marks", "export"),
    "Panes": ("focus_next", "focus_previous", "layout", "maximise"),
}
REST = "Program"
"""The group of every other action."""
TEXTUALS = {
    "focus_next": ("next pane", "Goes to the next pane."),
    "focus_previous": ("previous pane", "Goes to the pane before."),
    "scroll_left": ("left", "Shifts the text to the left."),
    "scroll_right": ("right", "Shifts the text to the right."),
    "page_left": ("page left", "Shifts the text by a page to the left."),
    "page_right": ("page right", "Shifts the text by a page to the right."),
    "screen.copy_text": ("copy", "Copies the text that was selected with the mouse."),
}
"""Actions of Textual's own: name, and what they do."""
CALLED = re.compile(r"""(?:app\.)?([\w.]+)(?:\(\s*['"]?([^'")]*)['"]?\s*\))?""")
SIGNS = {
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
}


class KeyHelp(Struct, frozen=True):
    """An action with its keys."""

    keys: tuple[str, ...]
    name: str
    about: str
    """A sentence."""
    group: str
    """Empty where it is one of the pane."""
    action: str
    node: DOMNode
    """Whose action it is."""


def keys_of(app: App[int], focused: DOMNode | None) -> list[KeyHelp]:
    """Returns what keys do: first those of the pane one is in, then the others by their group."""
    found: list[KeyHelp] = []
    node = focused
    while node is not None and node is not app:
        found += _of_node(node, in_pane=not isinstance(node, Screen))
        node = node.parent
    found += _of_node(app, in_pane=False)
    order = ["", *GROUPS, REST]
    return sorted(found, key=lambda one: order.index(one.group))


def _of_node(node: DOMNode, *, in_pane: bool) -> Iterator[KeyHelp]:
    by_action: dict[str, list[Binding]] = {}
    for bindings in node._bindings.key_to_bindings.values():
        for binding in bindings:
            if binding.description:
                by_action.setdefault(binding.action, []).append(binding)
    for action, bindings in by_action.items():
        name, argument = _parsed(action)
        told = _told(node, name, argument, bindings[0].description)
        group = "" if in_pane else next((one for one, its in GROUPS.items() if name in its), REST)
        keys = tuple(dict.fromkeys(_sign(one) for one in bindings))
        yield KeyHelp(keys, *told, group, action, node)


def _parsed(action: str) -> tuple[str, str]:
    """Returns the name of an action and its argument, if it has one."""
    found = CALLED.fullmatch(action)
    return (action, "") if found is None else (found[1], found[2] or "")


def _told(node: DOMNode, name: str, argument: str, description: str) -> tuple[str, str]:
    """Returns what an action is called, and what it does."""
    if name == "view" and argument in BY_NAME:
        return f"view: {argument}", _sentence(f"shows {BY_NAME[argument].about}")
    move = next((one for one in MOVES if name == "move" and one.name == argument), None)
    if move is not None:
        return f"go to: {move.name}", _sentence(move.about)
    if name in TEXTUALS:
        return TEXTUALS[name]
    docstring = getattr(getattr(node, f"action_{name}", None), "__doc__", None)
    if argument or not docstring:
        return description, _sentence(description)
    return description, " ".join(docstring.split("\n\n")[0].split())


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _sign(binding: Binding) -> str:
    """Returns how a key is shown."""
    return binding.key_display or SIGNS.get(binding.key, binding.key)
