"""Columns of tables: what each is called, what gives its value, and how people read it.

In: objects of the model, one for each row. Out: lines of JSON, rows of Parquet, and a `Table` that a terminal
and a page of HTML show. A column is said once: what has a key is in JSON, what has a type is in Parquet too,
what has a title is shown to people. Text in a table is printable, and not escaped for HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from rpcinspect.fields.phrases import end_label
from rpcinspect.fields.plain import Json, Picked, plain

if TYPE_CHECKING:
    from rpcinspect.fields.field import Get

Style: TypeAlias = Literal["", "bad", "odd"]


class Links(Struct, frozen=True):
    """A cell that names messages, behind a text; a page links to them."""

    messages: Sequence[int]
    text: str = ""


Cell: TypeAlias = str | Links


class Column(Struct, frozen=True, eq=False, dict=True):
    """One column; JSON and Parquet have their columns in the order of a list, people see theirs in it."""

    key: str = ""
    """Its name in JSON and in Parquet; empty: only people see it."""
    type: str = ""
    """What Parquet has in it, as docs/parquet.md calls that; empty: it is not in Parquet."""
    of: str | Get = ""
    """Its value: an attribute, with dots on the way to an inner one, None where that is of None; or what a
    function gives, which is JSON already where it has a key. Empty: the attribute of its name."""
    title: str = ""
    """What stands above it; empty: people do not see it."""
    words: Callable[[Any], Cell] | None = None
    """Makes a cell of its value, where there is one."""
    cell: Callable[[Any, Any], Cell] | None = None
    """Makes a cell of the object of the row, and of what else is known: the run, most often."""
    right: bool = False
    """Cells stand to the right."""
    gives_way: bool = False
    """Its cells are cut in their middle where a terminal is too narrow."""
    unless: Literal["", "same", "empty"] = ""
    """It is left out where all cells are the same, or empty."""
    json: bool = True
    """Whether it is in JSON."""
    renamed: str = ""
    """What Parquet calls it, if not so."""

    @cached_property
    def get(self) -> Get:
        """Gives its value of an object."""
        if not isinstance(self.of, str):
            return self.of
        first, *inner = (self.of or self.key).split(".")
        return attrgetter(first) if not inner else lambda item: plain(_inner(item, first, inner))

    @property
    def is_attribute(self) -> bool:
        """Whether its value is one of the object itself."""
        return isinstance(self.of, str) and "." not in self.of

    @property
    def name(self) -> str:
        """What Parquet calls it."""
        return self.renamed or self.key

    def maker(self, known: Any) -> Callable[[Any], Cell]:
        """Makes its cells of objects of rows."""
        if self.cell is not None:
            cell = self.cell
            return lambda item: cell(item, known)
        get, words = self.get, self.words or in_words

        def made(item: Any) -> Cell:
            value = get(item)
            return "" if value is None else words(value)

        return made

    def is_worth(self, cells: Sequence[Cell]) -> bool:
        """Whether it is shown with these cells."""
        if not self.unless:
            return True
        return any(cell != cells[0] for cell in cells) if self.unless == "same" else any(cells)


def _inner(item: Any, first: str, inner: Sequence[str]) -> Any:
    value = getattr(item, first)
    for name in inner:
        value = None if value is None else getattr(value, name)
    return value


def in_words(value: Any) -> str:
    """A number, a name, or several names."""
    if isinstance(value, int):
        return f"{value:,}"
    return end_label(value) if isinstance(value, str) else ", ".join(map(in_words, value))


class Table(Struct, frozen=True):
    """Rows for people, as wide as they must be."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    styles: Sequence[Style]
    left_out: int = 0
    """Rows for which there is no room."""


def table(
    columns: Sequence[Column],
    items: Sequence[Any],
    known: Any = None,
    *,
    style: Callable[[Any], Style] = lambda _: "",
    most: int | None = None,
) -> Table:
    """Makes a table with a row for each object, for `most` of them at most."""
    titled, shown = [column for column in columns if column.title], items[:most]
    makers = [column.maker(known) for column in titled]
    rows = [[make(item) for make in makers] for item in shown]
    kept = [at for at, one in enumerate(titled) if one.is_worth([row[at] for row in rows])]
    if len(kept) < len(titled):
        titled, rows = [titled[at] for at in kept], [[row[at] for at in kept] for row in rows]
    return Table(titled, rows, [*map(style, shown)], len(items) - len(shown))


def json_of(columns: Sequence[Column], kind: str = "") -> Callable[[Any], Json]:
    """Makes lines of JSON of a kind, or objects without one."""
    named = {one.key: one for one in columns if one.key and one.json}
    return _values(named, {"kind": kind} if kind else {})


def cells_of(columns: Sequence[Column]) -> Callable[[Any], Json]:
    """Makes rows of Parquet."""
    maps = [column.name for column in columns if column.type == "map"]
    values = _values({one.name: one for one in columns if one.type}, {})

    def cells(item: Any) -> Json:
        row = values(item)
        for name in maps:
            row[name] = None if row[name] is None else [*row[name].items()]
        return row

    return cells


def _values(named: Mapping[str, Column], first: Json) -> Callable[[Any], Json]:
    """Makes dicts; there may be as many as messages, so attributes are asked for all at once."""
    attributes = [f"{name}={one.of or one.key}" for name, one in named.items() if one.is_attribute]
    picked = Picked(" ".join(attributes))
    others = [(name, one.get) for name, one in named.items() if not one.is_attribute]
    empty = first | dict.fromkeys(named)

    def told(item: Any) -> Json:
        values = empty | picked(item)
        for name, make in others:
            values[name] = make(item)
        return values

    return told
