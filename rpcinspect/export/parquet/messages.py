"""Messages and their tensors as rows of the `messages` and `tensors` tables.

In: the session, and records of a second pass. Out: a value for each column. Lengths that were
announced may be absurd: they are cut off at the largest int64, since no engine has a type for all of them.
What all messages of a pattern have is worked out once for the pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec import UNSET

from rpcinspect.export.parquet.table_file import ParquetRow
from rpcinspect.fields.field import Field, Seen, several
from rpcinspect.fields.message import MessageValues, Reader
from rpcinspect.fields.session import AtEachRow
from rpcinspect.fields.table import MESSAGE, TENSOR
from rpcinspect.rpc.cache import TREE_WEIGHT, BoundedCache
from rpcinspect.rpc.patterns import Pattern
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.message import Tensor
from rpcinspect.session.model import Session
from rpcinspect.tcp.ranges import CaptureBytes

MAX_INT64 = (1 << 63) - 1
MAX_BYTES = 1 << 22
"""Of the payloads of patterns whose rows are kept."""

OF_PATTERN = frozenset(
    {
        *("envelope", "body", "function", "arg", "kwargs", "async", "value", "problem"),
        *(
            "failed",
            "error.type",
            "error.node_id",
            "error.text",
            "sender",
            "devices",
            "retain_graph",
            "grads",
        ),
        *("rref_id", "fork_id", "profiling_id", "tensors"),
    }
)
"""Fields that say the same of all messages of a pattern: neither its place nor its ids."""
OF_PATTERN_TENSORS = frozenset(
    {
        *("dtype", "shape", "stride", "offset", "layout", "device", "requires_grad", "parameter", "conj"),
        *("neg", "quantizer", "quantizer_scale", "quantizer_zero_point", "quantizer_axis", "part", "part_of"),
        *("numel", "nbytes", "storage"),
    }
)
"""Fields of tensors that do."""


class MessageRows:
    """Makes the rows of messages and of their tensors."""

    def __init__(
        self,
        session: Session,
        source: CaptureBytes,
        *,
        hashes: bool = True,
        columns: Collection[str] | None = None,
    ) -> None:
        """`columns`: those that are asked for, if not all: of others nothing is worked out."""
        self._reader = Reader(source, hashes=hashes)
        of_messages, of_tensors = (
            [
                one
                for one in fields
                if one.columns and (columns is None or not one.columns.keys().isdisjoint(columns))
            ]
            for fields in (MESSAGE, TENSOR)
        )
        seen = [one for one in of_messages if isinstance(one, Seen)]
        cells = {"index": _first} | {field.key: _cell_maker(field) for field in seen}
        self._known = AtEachRow(session, cells)
        self._first_seen = 0 if "index" in {field.key for field in seen} else 1
        self._shared, self._own = _divided([one for one in of_messages if one not in seen], OF_PATTERN)
        self._shared_of_tensors, self._own_of_tensors = _divided(of_tensors, OF_PATTERN_TENSORS)
        self._rows: BoundedCache[Pattern, ParquetRow] = BoundedCache(MAX_BYTES)
        self._tensor_rows: BoundedCache[Pattern, list[ParquetRow]] = BoundedCache(MAX_BYTES)
        self.columns = _names((*self._shared, *self._own, *seen))
        """Of rows of messages."""
        self.tensor_columns = (
            "tensor",
            *_names(self._shared_of_tensors),
            "message",
            *_names(self._own_of_tensors),
        )
        """Of rows of tensors."""

    def of(self, record: RpcRecord) -> tuple[ParquetRow, list[ParquetRow]]:
        """Returns the row of a message, and the rows of its tensors."""
        return self.message(record), self.tensors(record)

    def message(self, record: RpcRecord) -> ParquetRow:
        """The row of a message."""
        message, pattern = MessageValues(record, self._reader), record.pattern
        shared = None if pattern is None else self._rows.get(pattern)
        if shared is None:
            shared = tuple([cell for field in self._shared for cell in _cells(field, field.values(message))])
            if pattern is not None:
                self._rows.put(pattern, shared, _size(record))
        own = [_first(field.get(message)) for field in self._own]
        return (*shared, *own, *self._known.at(record.row)[self._first_seen :])

    def tensors(self, record: RpcRecord) -> list[ParquetRow]:
        """A row for each tensor."""
        if not record.like.tensors:
            return []
        index = self._known.at(record.row)[0]
        tensors = MessageValues(record, self._reader).tensors
        return [
            (*shared, index, *[_capped(field.get(tensor)) for field in self._own_of_tensors])
            for tensor, shared in zip(tensors, self._shared_tensors(record, tensors), strict=True)
        ]

    def _shared_tensors(self, record: RpcRecord, tensors: Sequence[Tensor]) -> list[ParquetRow]:
        pattern = record.pattern
        known = None if pattern is None else self._tensor_rows.get(pattern)
        if known is None:
            fields = self._shared_of_tensors
            known = [(tensor.number, *[_capped(field.get(tensor)) for field in fields]) for tensor in tensors]
            if pattern is not None:
                self._tensor_rows.put(pattern, known, _size(record))
        return known


def _divided(fields: Sequence[Field], shared: Collection[str]) -> tuple[list[Field], list[Field]]:
    """The fields that messages of a pattern share, and the others, of which each has one column."""
    return [one for one in fields if one.key in shared], [one for one in fields if one.key not in shared]


def _names(fields: Iterable[Field]) -> tuple[str, ...]:
    return tuple([name for field in fields for name in field.columns])


def _size(record: RpcRecord) -> int:
    """What a pattern's row may take, by its payloads."""
    return sum(map(len, record.tp.payloads)) * TREE_WEIGHT


def _cells(field: Field, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is in the columns of a field that has these values."""
    first = values[0] if values else None
    if len(field.columns) > 1:
        return first or (None, None)
    (cells,) = field.columns.values()
    return (list(values) if cells in SEVERAL else _capped(first),)


def _cell_maker(field: Field) -> Callable[[Any], Any] | None:
    """What makes the cell of a field that has one column; None: the value itself is it."""
    (cells,) = field.columns.values()
    if cells in SEVERAL:
        return lambda value: list(several(value))
    return None if cells in ("text", "bool") else _first


def _first(value: Any) -> Any:
    """The cell of one value, of the first of several, or of none."""
    if type(value) is tuple:
        return _capped(value[0]) if value else None
    return None if value is UNSET else _capped(value)


def _capped(value: Any) -> Any:
    return MAX_INT64 if type(value) is int and value > MAX_INT64 else value


SEVERAL = frozenset({"list of text", "list of int64", "map"})
"""Cells that have all values of a field."""
