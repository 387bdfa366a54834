"""A capture that is read while it is already shown.

In: a decoding that has begun. Out: rows that grow, each with its line; at the end the run. Reading goes on in
a thread of its own; whoever shows rows asks `count` and reads below it. A row never changes, but for names,
which become known, and numbers, which are in the order of time at the end only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from tempfile import TemporaryFile
from typing import Literal

from rpcinspect.errors import RpcInspectError
from rpcinspect.fields.phrases import Phrases, end_label
from rpcinspect.fields.session import is_housekeeping, pipe_ends
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.run import RunModel
from rpcinspect.unexpected import fault
from rpcinspect.views.spool import Spool
from rpcinspect.views.text.table import failed

State = Literal["reading", "finishing", "done", "failed"]
PLAIN, HOUSEKEEPING, FAILED = 0, 1, 2
JOIN_S = 10.0


class Reading:
    """One capture, or several that are one run, on the way into memory."""

    def __init__(self, decoding: Decoding, *, follows: bool = False) -> None:
        """`follows`: the capture is still being made."""
        self.decoding = decoding
        self.follows = follows
        self.state: State = "reading"
        self.why = ""
        """Why the reading failed."""
        self.count = 0
        """Rows that are there."""
        self.records: list[RpcRecord] = []
        self.kinds = bytearray()
        """Of each row whether it is housekeeping, or failed."""
        self.run: RunModel | None = None
        """Everything that is known, once all was read."""
        self._labels: dict[int, tuple[str, str]] = {}
        """Server and client of pipes, as known by now."""
        self._file = TemporaryFile()  # noqa: SIM115  (`close` closes it)
        self._spool = Spool(self._file)
        self._lock = threading.Lock()
        self._phrases = Phrases()
        self._stop = False
        self._thread = threading.Thread(target=self._read, name="rpcinspect reading", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def close(self) -> None:
        """Ends the reading and closes the captures."""
        self._stop = True
        self.decoding.stop()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)
        self.decoding.close()
        self._file.close()

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until all was read."""
        self._thread.join(timeout_s)

    @property
    def columns(self):  # type: ignore[no-untyped-def]
        """The columns of all rows."""
        return self.decoding.builder.columns

    def _read(self) -> None:
        try:
            for records in self.decoding.blocks():
                self._take(records)
                if self._stop:
                    return
            self.state = "finishing"
            self.run = RunModel.of(self.decoding, self.records)
            self.kinds = bytearray(self._final_kinds(self.run))
            self.state = "done"
        except (RpcInspectError, OSError) as error:
            self.state, self.why = "failed", str(error)
        except Exception as error:
            self.state, self.why = "failed", fault(error)

    def _final_kinds(self, run: RunModel) -> Iterator[int]:
        for kind, keeping in zip(self.kinds, run.session.messages.housekeeping(), strict=True):
            yield kind & FAILED | (HOUSEKEEPING if keeping else PLAIN)

    def _take(self, records: Sequence[RpcRecord]) -> None:
        """Notes some rows, and only then how many there are."""
        texts = [self._phrases.phrase(one).encode("utf-8", "backslashreplace") for one in records]
        with self._lock:
            self._spool.extend(texts)
        identities = self.decoding.identities()
        for record in records:
            pipe = record.tp.pipe.number
            server, client = pipe_ends(record, identities)
            self._labels[pipe] = end_label(server), end_label(client)
            keeping = HOUSEKEEPING if is_housekeeping(self.decoding, record) else PLAIN
            self.kinds.append(keeping | (FAILED if failed(record) else PLAIN))
        self.records += records
        self.count += len(records)

    def texts(self, rows: list[int]) -> list[str]:
        """Reads what happened in some rows, in words."""
        with self._lock:
            return [text.decode() for text in self._spool.read(rows)]

    def ends(self, row: int) -> tuple[str, str]:
        """Returns who sent a row's message to whom."""
        pipe, forth = self.columns.pipe[row], self.columns.from_client[row]
        if self.run is not None:
            session = self.run.session
            server, client = end_label(session.servers[pipe]), end_label(session.clients[pipe])
        else:
            server, client = self._labels[pipe]
        return (client, server) if forth else (server, client)

    def number(self, row: int) -> int:
        """Returns the number of a row's message; before the end, its row."""
        return row if self.run is None else int(self.run.session.index[row])

    def rows_in_order(self) -> Callable[[int], int]:
        """Returns what gives the row of a place in the order of time."""
        if self.run is None:
            return lambda at: at
        order = self.run.session.order
        return lambda at: int(order[at])
