"""What a field is: its name and kind, what gives its value, where it is shown.

In: a message, or columns of what is known of many. Out: values: what a message lacks is None, a tuple stands
for several.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Flag
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

from msgspec import UNSET, Struct

from rpcinspect.fields.kinds import PAIR, TEXT, Kind
from rpcinspect.fields.message import MessageValues
from rpcinspect.fields.plain import text
from rpcinspect.fields.session import ColumnValues, Known

Values: TypeAlias = tuple[Any, ...]
Get: TypeAlias = Callable[[Any], Any]


class To(Flag):
    """Where a field is, beside filters."""

    FILTER = 0
    JSON = 1
    TABLE = 2
    BOTH = 3


CELLS = {"text": "text", "type": "text", "flag": "bool", "shape": "list of int64"}
"""Kind → what is in columns, if not int64."""


class Field(Struct, frozen=True, eq=False, dict=True):
    """A value that each message has by itself: an attribute, dotted where it is an inner one, or a function's
    result."""

    key: str
    """Name in lines of JSON and in tables."""
    kind: Kind
    about: str
    test: str | None = None
    """What stands behind its name in a filter that is an example; None: no filter may name it."""
    of: str | Get = ""
    """Its value; empty: the attribute of its name."""
    to: To = To.BOTH
    renamed: str = ""
    """What its column is called, if not so."""
    cells: str = ""
    """What is in there: a list has all values, anything else the first."""
    plural: bool = False
    """Whether a message has several texts: its column, whose name has an s more, is a list of them."""
    streams: bool = True
    """Whether the value is known while messages come."""

    prefix: ClassVar[str] = ""
    """Of its name in filters."""
    keyed: ClassVar[bool] = False
    """Whether lines of JSON may have it under its key."""

    @property
    def name(self) -> str:
        """Returns the name in filters."""
        return self.prefix + self.key

    @property
    def example(self) -> str:
        """Returns a filter that uses the field."""
        return f"{self.name} {self.test}".rstrip()

    @property
    def in_json(self) -> bool:
        """Returns whether lines of JSON have the field under its key; a message's own fields stand in
        envelopes and body."""
        return self.keyed and To.JSON in self.to

    @property
    def columns(self) -> dict[str, str]:
        """Returns the columns in Parquet with their types: two for a pair."""
        if To.TABLE not in self.to:
            return {}
        if self.kind is PAIR:
            stem = self.key.removesuffix("_id")
            return {f"{stem}_created_on": "int64", f"{stem}_local_id": "int64"}
        if self.plural:
            return {f"{self.key}s": "list of text"}
        return {self.column_name: self.cells or CELLS.get(self.kind.name, "int64")}

    @property
    def column_name(self) -> str:
        """Returns what a column of single values is called."""
        return self.renamed or self.key.replace(".", "_")

    @cached_property
    def get(self) -> Get:
        """What gives the value; text that is an attribute comes as UTF-8 can hold it."""
        return _getter(self.of or self.key, self.kind)

    @property
    def late(self) -> bool:
        """Returns whether a message alone lacks the value, so that only `column` has it."""
        return False

    def values(self, message: MessageValues) -> Values:
        """Returns the values that a message alone has."""
        return several(self.get(message))

    def column(self, known: Known) -> ColumnValues:
        """Its value of each message that is asked about."""
        return known.column(self.key)


class Seen(Field, frozen=True, eq=False, dict=True):
    """A field that depends on other messages, too: a column of `Known`. With `of`, a message alone has it, so
    that a filter need not wait for the end."""

    keyed: ClassVar[bool] = True

    @property
    def late(self) -> bool:
        return not self.of


class OfPlace(Field, frozen=True, eq=False, dict=True):
    """Where in the captures a message is."""

    @property
    def column_name(self) -> str:
        return f"location_{self.key}"


class OfTensor(Field, frozen=True, eq=False, dict=True):
    """A value of each tensor of a message."""

    prefix: ClassVar[str] = "tensor."
    keyed: ClassVar[bool] = True

    def values(self, message: MessageValues) -> Values:
        return tuple([value for value in map(self.get, message.tensors) if value is not None])


def several(value: Any) -> Values:
    """The values of a field that has one, some or none."""
    return value if type(value) is tuple else () if value is None or value is UNSET else (value,)


def _getter(of: str | Get, kind: Kind) -> Get:
    """What gives the value; text that is an attribute comes as UTF-8 can hold it."""
    if not isinstance(of, str):
        return of
    get: Get = attrgetter(of)
    return (lambda one: text(found) if isinstance(found := get(one), str) else found) if kind is TEXT else get
