"""Messages and their tensors as rows of the `messages` and `tensors` tables.

In: the session, and records of a second pass. Out: dicts with a value for each column. Lengths that were
announced may be absurd: they are cut off at the largest int64, since no engine has a type for all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rpcinspect.export.parquet.table_file import ParquetRow
from rpcinspect.fields.field import Field, Seen, several
from rpcinspect.fields.message import MessageValues, Reader
from rpcinspect.fields.session import AtEachRow
from rpcinspect.fields.table import MESSAGE, TENSOR
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.tcp.ranges import CaptureBytes

MAX_INT64 = (1 << 63) - 1


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
        self._of_messages, self._of_tensors = (
            [
                one
                for one in fields
                if one.columns and (columns is None or not one.columns.keys().isdisjoint(columns))
            ]
            for fields in (MESSAGE, TENSOR)
        )
        self._known = AtEachRow(session)

    def of(self, record: RpcRecord) -> tuple[ParquetRow, list[ParquetRow]]:
        """Returns the row of a message, and the rows of its tensors."""
        return self.message(record), self.tensors(record)

    def message(self, record: RpcRecord) -> ParquetRow:
        """The row of a message."""
        row: ParquetRow = {}
        message = MessageValues(record, self._reader)
        for field in self._of_messages:
            known = isinstance(field, Seen)
            values = several(self._known.get(field.key, record.row)) if known else field.values(message)
            row |= _cells(field, values)
        return row

    def tensors(self, record: RpcRecord) -> list[ParquetRow]:
        """A row for each tensor."""
        index = self._known.get("index", record.row)
        return [
            {
                "message": index,
                "tensor": tensor.number,
                **{name: _capped(field.get(tensor)) for field in self._of_tensors for name in field.columns},
            }
            for tensor in MessageValues(record, self._reader).tensors
        ]


def _cells(field: Field, values: tuple[Any, ...]) -> ParquetRow:
    """What is in the columns of a field that has these values."""
    names = field.columns
    first = values[0] if values else None
    if len(names) > 1:
        return dict(zip(names, first or (None, None), strict=True))
    ((name, cells),) = names.items()
    return {name: list(values) if cells in SEVERAL else _capped(first)}


def _capped(value: Any) -> Any:
    return min(value, MAX_INT64) if type(value) is int else value


SEVERAL = frozenset({"list of text", "list of int64", "map"})
"""Cells that have all values of a field."""
