"""Messages on their way into a file, in a thread of its own: what the commands would write, byte for byte.

In: a run, which messages, a form, a path. Out: the file, or the folder; how far it is, and what came of it. A
file appears at its place when it is whole; one that is stopped leaves nothing.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from rpcinspect.browse.export_forms import ExportForm
from rpcinspect.browse.export_scopes import ExportScope, part_of_scope
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.errors import RpcInspectError
from rpcinspect.export.safetensors import TensorWriter
from rpcinspect.export.save import save_messages, with_partners
from rpcinspect.fields.phrases import counted, printable, printable_json
from rpcinspect.files.output import open_whole
from rpcinspect.files.temporary import Temporary
from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.unexpected import fault
from rpcinspect.views.jsonl.lines import JsonLines

BLOCK = 256
"""Messages that are taken at once."""
JOIN_S = 10.0


class ExportStopped(Exception):
    """The writing was given up."""


class ExportJob:
    """Writes messages to a file in a thread of its own."""

    def __init__(
        self,
        reading: GrowingRun,
        scope: ExportScope,
        form: ExportForm,
        path: Path,
        notes: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        """`notes`: by rows of messages."""
        self.path = path
        self.told = ""
        """What was written, once it is."""
        self.why = ""
        """Why nothing was."""
        self._reading = reading
        self._scope = scope
        self._form = form
        self._notes = notes
        self._done = ""
        self._shown: Shown | None = None
        """Which messages these are; None: all."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rpcinspect export", daemon=True)

    @property
    def over(self) -> bool:
        """Returns whether the file is written, or was given up."""
        return bool(self.told or self.why)

    @property
    def words(self) -> str:
        """Returns how far it is; empty once it is over."""
        return "" if self.over else f"writing {self.path.name}{self._done}"

    def start(self) -> None:
        """Starts the thread that writes."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the writing and waits for its thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        try:
            self._shown = part_of_scope(self._scope, self._reading).shown
            self.told = self._write()
        except ExportStopped:
            self.why = f"{self.path} was not written: given up"
        except (RpcInspectError, OSError) as error:
            self.why = str(error)
        except Exception as error:
            self.why = fault(error)

    def _write(self) -> str:
        if self._form.name == "safetensors":
            return self._tensors()
        if self._form.name == "jsonl":
            return self._lines()
        if self._form.name == "notes":
            return self._text()
        return self._capture(network=self._form.name == "pcap")

    def _capture(self, *, network: bool) -> str:
        session, shown = self._session, self._shown
        rows = bytes([1]) * len(session.messages) if shown is None else shown.rows
        kept = with_partners(session, rows, (record for some in self._blocks() for record in some))
        with self._opened(private=True) as output:
            left_out = save_messages(output, session, kept, self._reading.decoding, None, network=network)
        told = f"{counted(len(kept) - left_out, 'message')} in {self.path}"
        return told + (f"; {counted(left_out, 'message')} not of torch's form left out" if left_out else "")

    def _lines(self) -> str:
        session, shown = self._session, self._shown
        with Temporary() as spool:
            view = JsonLines(spool, self._bytes)
            for some in self._blocks():
                view.feed(self._meant(some))
            with self._opened(private=False) as output:
                output.writelines(map(printable_json, view.finish(session, shown)))
        count = len(session.messages) if shown is None else shown.count
        return f"{counted(count, 'message')} in {self.path}"

    def _tensors(self) -> str:
        with TensorWriter(self.path, self._session, self._bytes) as writer:
            for some in self._blocks():
                writer.feed(self._meant(some))
            count, size = writer.finish()
        return f"{counted(count, 'tensor')}, {counted(size, 'byte')}, in {self.path}"

    def _text(self) -> str:
        shown, count = self._shown, 0
        with self._opened(private=True) as output:
            for row in map(int, self._session.order):
                if shown is None or shown.rows[row]:
                    output.write(self._line(row).encode("utf-8", "backslashreplace"))
                    count += 1
        return f"{counted(count, 'message')} in {self.path}"

    def _line(self, row: int) -> str:
        """Returns what happened, and a note below it."""
        reading = self._reading
        seconds = (reading.columns.time_ns[row] - reading.start_ns) / 1e9
        told = f"#{reading.number(row)}  {seconds:.6f} s  {reading.told(row)}\n"
        note = printable(self._notes.get(row, ""))
        return told + (f"    {note}\n" if note else "")

    @property
    def _session(self) -> Session:
        run = self._reading.run
        assert run is not None
        return run.session

    @property
    def _bytes(self) -> CaptureBytes:
        """The bytes of the captures; what was looked at before does not count against what may be read."""
        return self._reading.decoding.bytes_beside()

    def _blocks(self) -> Iterator[Sequence[RpcRecord]]:
        """Yields records in the order of rows."""
        count = self._reading.count
        records = self._reading.records(0, count)
        for first in range(0, count, BLOCK):
            if self._stop.is_set():
                raise ExportStopped
            self._done = f": {first:,} of {counted(count, 'message')}"
            yield list(islice(records, BLOCK))

    def _meant(self, some: Sequence[RpcRecord]) -> list[RpcRecord | None]:
        """Returns records, None for those that are not meant."""
        shown = self._shown
        return [one if shown is None or shown.rows[one.row] else None for one in some]

    @contextmanager
    def _opened(self, *, private: bool) -> Iterator[BinaryIO]:
        with (
            open_whole(self.path, private=private) as file,
            io.BufferedWriter(_WatchedOutput(file, self)) as output,
        ):
            yield output

    def heard(self, size: int) -> None:
        """Takes notice of how many bytes were written."""
        if self._stop.is_set():
            raise ExportStopped
        self._done = f": {counted(size, 'byte')}"


class _WatchedOutput(io.RawIOBase):
    """A file that tells how much of it was written."""

    def __init__(self, file: BinaryIO, job: ExportJob) -> None:
        self._file = file
        self._job = job
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._job.heard(self._size)
        self._size += len(data)
        return self._file.write(data)
