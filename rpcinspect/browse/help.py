"""The text of the help: the keys of the pane one is in, then those that work everywhere, in groups.

In: the screen. Out: text, made of the bindings, so that no key is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rpcinspect.browse.keys import KeyHelp, keys_of

if TYPE_CHECKING:
    from textual.screen import Screen

WIDTH = 14
"""Cells for keys."""
HERE = "In this pane"
MOUSE = (
    ("click", "Moves the cursor, or chooses a view or a key of the last line"),
    ("click twice", "Opens the line, as enter does"),
    ("wheel", "Moves the cursor by three lines"),
    ("shift", "Held down, lets the terminal select text, as without this program"),
)


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
