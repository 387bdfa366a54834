"""What keys do, in words and in groups: for the help, and for the palette of all commands.

In: the screen. Out: its bindings, those of the pane one is in and of the app, with what they do, so that none
is forgotten: views and moves tell it themselves, of any other action the docstring does. All of it as text,
too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct
from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

from rpcinspect.browse.moves import MOVES
from rpcinspect.browse.views import BY_NAME

GROUPS = {
    "Views": ("view", "every", "differing", "details", "summary"),
    "Go to": (*("move", "go", "difference", "first", "cause", "partner", "travel"),),
    "Find": ("filter", "find", "again"),
    "Marks, notes, export": ("mark", "next_mark", "comment", "marks", "export"),
    "Panes": ("focus_next", "focus_previous", "layout", "maximise"),
}
REST = "Program"
"""The group of every other action."""
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}
ORDER = ("", *GROUP_OF, REST)
TEXTUALS = {
    "focus_next": ("next pane", "Goes to the next pane"),
    "focus_previous": ("previous pane", "Goes to the pane before"),
    "scroll_left": ("left", "Shifts the text to the left"),
    "scroll_right": ("right", "Shifts the text to the right"),
    "page_left": ("page left", "Shifts the text by a page to the left"),
    "page_right": ("page right", "Shifts the text by a page to the right"),
    "screen.copy_text": ("copy", "Copies the text that was selected with the mouse"),
    "dismiss": ("back", "Goes back to the message"),
    "command_palette": ("commands", "Shows all commands by their names"),
    "suspend_process": ("to the shell", "Goes to the shell; fg comes back"),
    "quit": ("quit", "Ends the program"),
}
"""Actions of Textual's own: name, and what they do."""
WIDTH = 14
"""Cells for keys."""
HERE = "In this pane"
MOUSE = (
    ("click", "Moves the cursor, or chooses a view or a key of the last line"),
    ("click twice", "Opens the line, as enter does"),
    ("wheel", "Moves the cursor by three lines"),
    ("shift", "Held down, lets the terminal select text, as without this program"),
)
CALLED = re.compile(r"""(?:app\.)?([\w.]+)(?:\(\s*['"]?([^'")]*)['"]?\s*\))?""")


class KeyHelp(Struct, frozen=True):
    """An action with its keys."""

    keys: tuple[str, ...]
    name: str
    about: str
    """What it does, where more than its name is to be said."""
    group: str
    """Empty where it is one of the pane."""
    action: str
    node: DOMNode
    """Whose action it is."""


def keys_of(screen: Screen[Any]) -> list[KeyHelp]:
    """Returns what keys do where one is: first those of the pane, then the others by their group."""
    by_action: dict[tuple[DOMNode, str], list[Binding]] = {}
    for node, binding, *_ in screen.active_bindings.values():
        if binding.description:
            by_action.setdefault((node, binding.action), []).append(binding)
    found: list[tuple[int, KeyHelp]] = []
    for (node, action), bindings in by_action.items():
        name, argument = _parsed(action)
        in_pane = node is not screen and node is not screen.app
        group = "" if in_pane else GROUP_OF.get(name, REST)
        keys = tuple(dict.fromkeys(map(screen.app.get_key_display, bindings)))
        told = _told(node, name, argument, bindings[-1])
        found.append(
            (ORDER.index(name if group in GROUPS else group), KeyHelp(keys, *told, group, action, node))
        )
    return [one for _, one in sorted(found, key=lambda placed: placed[0])]


def _parsed(action: str) -> tuple[str, str]:
    """Returns the name of an action and its argument, if it has one."""
    found = CALLED.fullmatch(action)
    return (action, "") if found is None else (found[1], found[2] or "")


def _told(node: DOMNode, name: str, argument: str, binding: Binding) -> tuple[str, str]:
    """Returns what an action is called, and what it does."""
    if name == "view" and argument in BY_NAME:
        return f"view: {argument}", BY_NAME[argument].about
    move = next((one for one in MOVES if name == "move" and one.name == argument), None)
    if move is not None:
        return f"go to: {move.name}", move.about
    if name in TEXTUALS:
        return TEXTUALS[name]
    docstring = getattr(getattr(node, f"action_{name}", None), "__doc__", None)
    if argument or not docstring:
        return binding.description, binding.tooltip
    return binding.description, " ".join(docstring.split("\n\n")[0].split()).removesuffix(".")


def help_text(screen: Screen[Any]) -> Group:
    """Returns the groups with their keys."""
    groups = []
    for group, some in groupby(keys_of(screen), key=lambda one: one.group):
        groups.append(_group(group or HERE, [(", ".join(one.keys), shown_words(one)) for one in some]))
    return Group(*groups, _group("Mouse", MOUSE))


def shown_words(one: KeyHelp) -> str:
    """Returns what a key does; the name of a view or a move stands before it."""
    name = one.name.partition(": ")[2]
    return f"{name}: {one.about}" if name else one.about or one.name.capitalize()


def _group(title: str, lines: Sequence[tuple[str, str]]) -> Group:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=WIDTH)
    table.add_column()
    for keys, about in lines:
        table.add_row(Text(keys, "bold"), Text(about))
    return Group(Text(title, "bold underline"), table, Text())
