"""A session as one partition of a lake: `LAKE/TABLE/capture=NAME/part-0.parquet` for each table.

In: a session of a first pass, the records of a second. Out: files that take the place of those of an earlier
run at once, when all are complete. Raises `OutputError` where files can't be written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import orjson
import pyarrow as pa
from pyarrow.parquet import read_schema

from rpcinspect import __version__
from rpcinspect.errors import CaptureError, OutputError
from rpcinspect.export.parquet.messages import MessageRows
from rpcinspect.export.parquet.schema import TABLES, VERSION
from rpcinspect.export.parquet.session import call_rows, session_rows
from rpcinspect.export.parquet.table_file import ParquetFile, in_order
from rpcinspect.fields.plain import Json, text
from rpcinspect.files.closing import Closing
from rpcinspect.files.output import OutputFolder
from rpcinspect.files.temporary import Temporary
from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.views.jsonl.calls import CallRows

Beginning: TypeAlias = tuple[str, int | None]
"""Path and first time of a capture."""

CAPTURES, FILES = b"rpcinspect.captures", b"rpcinspect.files"
FILTER, HASHES = b"rpcinspect.filter", b"rpcinspect.hashes"


class Lake(Closing):
    """The view: in a `with` statement `feed` every record, `finish`, then `publish`."""

    def __init__(self, folder: Path, partition: str) -> None:
        self._folder = folder
        self.partition = partition
        self._partition = f"capture={quote(partition, safe='')}"
        self.place = folder / "*" / self._partition
        """Where its files are; the star stands for a table."""
        self._files: dict[str, ParquetFile] = {}
        self._spool: Temporary | None = None
        """What requests and answers say, until they are put together."""
        self._output: OutputFolder | None = None

    def has(self, paths: Sequence[str], filter: str, *, hashes: bool) -> bool:
        """Whether these files were written like this, and have not changed since then."""
        files = _files(paths)
        wanted = {
            b"rpcinspect.schema": VERSION.encode(),
            FILTER: filter.encode(errors="replace"),
            FILES: files,
            HASHES: b"%d" % hashes,
        }
        return files is not None and wanted.items() <= self._there().items()

    def _there(self) -> dict[bytes, bytes]:
        """Returns what the partition that is there says of itself; nothing where there is none."""
        path = self._folder / self._part("findings")  # the last one that is put in its place
        with self._writing():
            return (read_schema(path).metadata or {}) if path.is_file() else {}

    def others(self, session: Session) -> list[Beginning]:
        """How the captures of the partition that is there begin, if they are others."""
        there: list[Beginning] = orjson.loads(self._there().get(CAPTURES, b"[]"))
        if not there:
            return []
        own = beginnings(session)
        return [] if [begin for _, begin in there] == [begin for _, begin in own] else there

    def begin(
        self, session: Session, shown: Shown | None, source: CaptureBytes, *, hashes: bool = True
    ) -> None:
        """Makes the files aside. Of messages and tensors those that are `shown` are written."""
        self._session = session
        self._shown, self._hashes = shown, hashes
        self._rows = MessageRows(session, source, hashes=hashes)
        self._spool = Temporary()
        self._calls = CallRows(self._spool)
        self._seen = 0
        self._output = OutputFolder(self._folder, private=False)
        names = {"messages": self._rows.columns, "tensors": self._rows.tensor_columns}
        with self._writing():
            for name, schema in TABLES.items():
                described = schema.with_metadata(self._metadata(name))
                file = self._output.new(self._part(name))
                self._files[name] = ParquetFile(file, described, names.get(name))

    def _metadata(self, table: str) -> dict[bytes, bytes]:
        return {
            b"rpcinspect.schema": VERSION.encode(),
            b"rpcinspect.table": table.encode(),
            b"rpcinspect.version": __version__.encode(),
            FILTER: b"" if self._shown is None else self._shown.text.encode(errors="replace"),
            CAPTURES: orjson.dumps(beginnings(self._session)),
            FILES: _files([one.path for one in self._session.captures]) or b"",
            HASHES: b"%d" % self._hashes,
        }

    def feed(self, record: RpcRecord) -> None:
        """Takes a record, of all that there are."""
        self._seen += 1
        if self._seen > len(self._session.messages):
            raise self._changed()
        self._calls.feed((record,))
        if self._shown is not None and not self._shown.rows[record.row]:
            return
        message, tensors = self._files["messages"], self._files["tensors"]
        row, its_tensors = record.told(self._rows.of)
        with self._writing():
            message.add(row)
        for row in its_tensors:
            with self._writing():
                tensors.add(row)

    def finish(self) -> dict[str, int]:
        """Completes the files; returns the number of rows of each table."""
        if self._seen != len(self._session.messages):
            raise self._changed()
        with self._writing():
            for name, rows in session_rows(self._session, self._shown):
                self._add(name, rows)
            self._add("calls", call_rows(self._calls.of(self._session, self._shown)))
            for file in self._files.values():
                file.close()
        return {name: file.rows for name, file in self._files.items()}

    def _add(self, table: str, rows: Iterable[Json]) -> None:
        for row in in_order(rows, TABLES[table].names):
            self._files[table].add(row)

    def publish(self) -> int:
        """Puts the files in their places, each at once; returns their bytes."""
        assert self._output is not None
        return self._output.put()

    def _part(self, table: str) -> str:
        return f"{table}/{self._partition}/part-0.parquet"

    def _changed(self) -> CaptureError:
        return CaptureError(f"{self._session.captures[0].path}: it has changed while it was read")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or error
            raise OutputError(f"{self._folder}: can't be written: {reason}") from error

    def close(self) -> None:
        """Removes what was not published."""
        if self._spool is not None:
            self._spool.close()
        for file in self._files.values():
            file.abandon()
        if self._output is not None:
            self._output.drop()


def beginnings(session: Session) -> list[Beginning]:
    """Returns what identifies captures: the times of their first packets, by their own clocks. Paths do not:
    hosts of a fleet have the same, and files are moved."""
    found = []
    for capture in session.captures:
        first, clock = capture.first_time_ns, capture.clock
        if first is not None and clock is not None:
            first += clock.shift_ns
        found.append((text(capture.path), first))
    return found


def _files(paths: Sequence[str]) -> bytes | None:
    """Returns by what files are known that have not changed: their sizes and times of change; None where one
    is no file."""
    try:
        found = [os.stat(path) for path in paths]
    except OSError:
        return None
    if not all(stat.S_ISREG(one.st_mode) for one in found):
        return None
    return orjson.dumps([[one.st_size, one.st_mtime_ns] for one in found])


def partition_name(paths: Sequence[str]) -> str:
    """What a session is called that nobody has named: as its first file, and how many others there are."""
    name = file = Path(paths[0]).name
    for ending in (".gz", ".zst", ".pcap", ".pcapng", ".cap"):
        name = name.removesuffix(ending)
    return (name or file) + (f"_and_{len(paths) - 1}_more" if len(paths) > 1 else "")
