"""Python source in lines that are not too long, as the usual formatters write it.

In: text, and brackets with items. Out: the same on one line where that fits, otherwise one item per line with
a comma behind each, which is what black and `ruff format` leave as it is.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

WIDTH = 88
INDENT = "    "


class Brackets(Struct, frozen=True):
    """`open item, item close`."""

    open: str
    items: tuple[Item, ...]
    close: str
    single_comma: bool = False
    """A comma behind an item that is the only one: a tuple's."""


Source: TypeAlias = "str | Brackets"


class Item(Struct, frozen=True):
    """One item; `prefix` is what stands before it: `x=`, `"key": `."""

    prefix: str
    source: Source


def brackets(opening: str, items: list[Source], closing: str, *, single_comma: bool = False) -> Brackets:
    """Without prefixes."""
    return Brackets(opening, tuple(Item("", item) for item in items), closing, single_comma)


def flat(source: Source) -> str:
    """On one line."""
    if isinstance(source, str):
        return source
    inner = ", ".join(item.prefix + flat(item.source) for item in source.items)
    comma = "," if source.single_comma and len(source.items) == 1 else ""
    return f"{source.open}{inner}{comma}{source.close}"


def lay_out(source: Source, *, lead: str = "", tail: str = "", depth: int = 0) -> str:
    """`lead` + source + `tail` with `depth` levels of indentation; the first line is indented too."""
    return INDENT * depth + _lay(source, lead, tail, depth)


def _lay(source: Source, lead: str, tail: str, depth: int) -> str:
    line = lead + flat(source) + tail
    if isinstance(source, str) or not source.items or len(line) <= WIDTH - len(INDENT) * depth:
        return line
    indent = INDENT * (depth + 1)
    rows = [indent + _lay(item.source, item.prefix, ",", depth + 1) for item in source.items]
    return "\n".join([lead + source.open, *rows, INDENT * depth + source.close + tail])
