"""What a filter says, as a tree: comparisons of fields with values, joined by `and`, `or` and `not`.

Plain frozen records, made by `grammar.parse`. `str` writes a tree as a filter that is read as the same tree.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from rpcinspect.fields.field import Field
from rpcinspect.fields.kinds import Word, quote


class Present(Struct, frozen=True):
    """A field alone: a flag is true, anything else is there."""

    field: Field

    def __str__(self) -> str:
        return self.field.name


class Compare(Struct, frozen=True):
    """A field and a value. With `~` the value is a regular expression, with `in` a tuple of values."""

    field: Field
    operator: str
    value: Word

    def __str__(self) -> str:
        write = self.field.kind.write
        if self.operator == "in":
            value = f"{{{', '.join(write(item) for item in self.value)}}}"
        else:
            value = quote(self.value) if self.operator == "~" else write(self.value)
        return f"{self.field.name} {self.operator} {value}"


class Not(Struct, frozen=True):
    """The opposite."""

    item: Expression

    def __str__(self) -> str:
        return f"not {self.item}" if isinstance(self.item, (Present, Not)) else f"not ({self.item})"


class And(Struct, frozen=True):
    """A conjunction of at least two expressions."""

    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return " and ".join(f"({item})" if isinstance(item, (And, Or)) else str(item) for item in self.items)


class Or(Struct, frozen=True):
    """A disjunction of at least two expressions."""

    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return " or ".join(f"({item})" if isinstance(item, Or) else str(item) for item in self.items)


Expression: TypeAlias = Present | Compare | Not | And | Or
