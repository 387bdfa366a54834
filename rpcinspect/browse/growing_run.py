"""A capture that is read while it is already shown.

In: a decoding that has begun. Out: rows that grow, each with its line; at the end the run. Reading goes on in
a thread of its own; whoever shows rows asks `count` and reads below it. A row never changes, but for names,
which become known, and numbers, which are in the order of time at the end only.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import orjson
from rich.cells import cell_len

from rpcinspect.errors import RpcInspectError
from rpcinspect.fields.phrases import Phrases, end_label, join_ends
from rpcinspect.fields.session import is_housekeeping, pipe_ends
from rpcinspect.files.closing import Closing
from rpcinspect.files.temporary import Temporary
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.callee import Name
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.session.callees import names_of
from rpcinspect.session.model import NONE, MessageColumns, WorkerIdentities
from rpcinspect.session.provenance import NO_CONTEXT
from rpcinspect.sources.message_store import MessageStore
from rpcinspect.sources.stored_records import StoredRecords
from rpcinspect.unexpected import fault
from rpcinspect.views.jsonl.calls import CallTexts, call_text, outcome
from rpcinspect.views.spool import Spool
from rpcinspect.views.text.table import failed

if TYPE_CHECKING:
    from rpcinspect.run.run import RunModel

ReadingState = Literal["reading", "finishing", "done", "failed"]
PLAIN, HOUSEKEEPING, FAILED = 0, 1, 2
JOIN_S = 2.0
"""An input that is still being written ends within a second; nobody waits for more."""
LIVE = "live"
REST_S, STEP_S = 0.1, 0.005
"""How long the reading rests after a key, and how often it looks whether it may go on."""
MAX_RECORDS = 50_000
"""Messages of which the records stay in memory, at 1.5 kB each."""
MAX_CAUSES = 500_000
"""Messages of which causes are worked out before anybody asks."""


class GrowingRun(Closing):
    """One capture, or several that are one run, on the way into memory."""

    def __init__(
        self,
        decoding: Decoding,
        *,
        follows: bool = False,
        keeps: bool = False,
        ends: Callable[[], str] | None = None,
    ) -> None:
        """`follows`: the capture is still being made; `keeps`: an index of it is to be made; `ends`: makes
        whoever makes the capture end, and says what was done about that, nothing where it has ended."""
        self.decoding = decoding
        self._keeps = keeps
        self.notices: list[str] = []
        """What is to be said once all was read."""
        self.follows = follows
        self._make_end = ends
        self.state: ReadingState = "reading"
        self.why = ""
        """Why the reading failed."""
        self.count = 0
        """Rows that are there."""
        self._records: list[RpcRecord] = []
        """Of all rows, as long as these are few."""
        self._store: MessageStore | None = MessageStore() if keeps else None
        """The messages of all rows: of many, and of captures of which an index is to be made."""
        self.kinds = bytearray()
        """Of each row whether it is housekeeping, or failed."""
        self.run: RunModel | None = None
        """Everything that is known, once all was read."""
        self.progress: tuple[int, int | None] = (0, None)
        """Bytes that were read, of how many."""
        self._way_given_until = 0.0
        self.causes_are_known = False
        """Whether what caused what was worked out: of many messages that is left to whoever asks."""
        self._labels: dict[int, tuple[str, str]] = {}
        """Server and client of pipes, as known by now."""
        self._identities: WorkerIdentities | None = None
        """From which those labels are."""
        self.ends_width = 0
        """Cells that the longest names of two ends take."""
        self._files = Temporary(), Temporary()
        self._spool = Spool(self._files[0])
        self._calls = Spool(self._files[1])
        self._call_texts = CallTexts()
        self._lock = threading.Lock()
        self._phrases = Phrases()
        self._stop = self._ends = False
        self._thread = threading.Thread(target=self._read, name="rpcinspect reading", daemon=True)

    def heard(self, done: int, of: int | None) -> None:
        """Takes notice of how far the reading is."""
        self.progress = done, of

    def give_way(self) -> None:
        """Lets the reading rest for a moment, since a key was pressed; not of what is being captured now."""
        if not self.follows:
            self._way_given_until = time.monotonic() + REST_S

    def start(self) -> None:
        """Begins to read the captures, in a thread of its own."""
        self._thread.start()

    def end(self) -> str:
        """Ends the reading of what is still being written; returns what was done, empty where nothing is."""
        if not self.follows or self.state != "reading":
            return ""
        if self._make_end is not None:
            return self._make_end()
        if self._ends:
            return ""
        self._ends = True
        self.decoding.stop()
        return "the capture ends here: Ctrl-C again, or q, ends the program"

    def close(self) -> None:
        """Ends the reading and closes the captures."""
        self._stop = True
        self.decoding.stop()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)
        self.decoding.close()
        for file in self._files:
            file.close()
        if self._store is not None:
            self._store.close()

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until all was read."""
        self._thread.join(timeout_s)

    @property
    def columns(self) -> MessageColumns:
        """The columns of all rows."""
        return self.decoding.builder.columns

    def _read(self) -> None:
        try:
            for records in self.decoding.blocks():
                self._take(records)
                while not self._stop and time.monotonic() < self._way_given_until:
                    time.sleep(STEP_S)
                if self._stop:
                    return
            self.state = "finishing"
            run = self._whole_run()
            self.kinds = bytearray(self._final_kinds(run))
            for server, client in zip(run.session.servers, run.session.clients, strict=True):
                self._widen(server, client)
            self.causes_are_known = self.count <= MAX_CAUSES
            if self.causes_are_known:
                run.causes  # noqa: B018  (here, where nobody waits for a key)
            self.run = run
            self.notices = [*run.notices, *self._index()]
            gc.freeze()  # what there is of a large run stays; looking through it would hold a key for 0.1 s
            self.state = "done"
        except (RpcInspectError, OSError) as error:
            self.state, self.why = "failed", str(error)
        except Exception as error:
            self.state, self.why = "failed", fault(error)

    def _index(self) -> Iterator[str]:
        """Makes the index that was asked for; says where it is, or why there is none."""
        if self._store is None or not self._keeps:
            return
        try:
            place = self.decoding.write_index(self._store)
            yield f"the index is {place}: the next time this opens at once"
        except RpcInspectError as error:
            yield str(error)

    def _final_kinds(self, run: RunModel) -> Iterator[int]:
        for kind, keeping in zip(self.kinds, run.session.messages.housekeeping(), strict=True):
            yield kind & FAILED | (HOUSEKEEPING if keeping else PLAIN)

    def _take(self, records: Sequence[RpcRecord]) -> None:
        """Notes some rows, and only then how many there are."""
        texts = [self._phrases.phrase(one).encode("utf-8", "backslashreplace") for one in records]
        calls = [self._call_texts.of(one) for one in records]
        with self._lock:
            self._spool.extend(texts)
            self._calls.extend(calls)
        identities = self.decoding.identities()
        if identities is not self._identities:
            self._identities = identities
            for pipe in self._labels:
                if pipe < len(identities.clients):
                    self._label(pipe, identities.servers[pipe], identities.clients[pipe])
        for record in records:
            self._label(record.tp.pipe.number, *pipe_ends(record, identities))
            keeping = HOUSEKEEPING if is_housekeeping(self.decoding, record) else PLAIN
            self.kinds.append(keeping | (FAILED if failed(record) else PLAIN))
        self._keep(records)
        self.count += len(records)

    def _label(self, pipe: int, server: str, client: str) -> None:
        if self._labels.get(pipe) != (server, client):
            self._labels[pipe] = server, client
            self._widen(server, client)

    def _keep(self, records: Sequence[RpcRecord]) -> None:
        """Keeps records in memory, or of many their messages in a file."""
        many = self.count + len(records) > MAX_RECORDS
        if many and self._store is None:
            self._store = store = MessageStore()
            store.extend([record.tp for record in self._records])
        if self._store is not None:
            self._store.extend([record.tp for record in records])
        if many:
            self._records = []
        else:
            self._records += records

    @property
    def in_memory(self) -> bool:
        """Returns whether all records are in memory; else each is decoded once more where it is asked for."""
        return len(self._records) == self.count

    def _whole_run(self) -> RunModel:
        from rpcinspect.run.run import RunModel

        decoding, store = self.decoding, self._store
        if store is None or self._records:
            return RunModel.of(decoding, self._records)
        records = StoredRecords(store, decoding.session.order)
        return RunModel(
            decoding.session,
            records,
            ends=decoding.ends,
            source=decoding.bytes_beside(),
            notices=decoding.notices,
        )

    def record(self, row: int) -> RpcRecord:
        """Returns the record of a row. Raises `DecodeError` where the file that has it is damaged."""
        return next(self.records(row, row + 1))

    def records(self, first: int, last: int) -> Iterator[RpcRecord]:
        """Yields the records of some rows in their order; for any thread."""
        decoder = RecordDecoder()
        for row in range(first, last):
            records = self._records
            if row < len(records):
                yield records[row]
            else:
                assert self._store is not None
                yield decoder.again(row, self._store[row])

    def _widen(self, server: str, client: str) -> None:
        self.ends_width = max(self.ends_width, cell_len(join_ends(end_label(client), end_label(server))))

    def partner(self, row: int) -> int:
        """Returns the row of the answer, or of the request; `NONE` where that is not there: columns are ahead
        of what was noted of their rows."""
        partner = self.columns.partner[row]
        return partner if partner < self.count else NONE

    def call_texts(self, row: int) -> tuple[str, str]:
        """Returns the call of a request, and what came of it as far as that is known."""
        partner = self.partner(row)
        with self._lock:
            asked, *answered = self._calls.read([row] if partner == NONE else [row, partner])
        context = name = failure = None
        if self.run is not None:
            context = self.run.session.provenance.context[row]
            name, failure = self.names.get(row), self.run.session.failures.get(row)
        text = call_text(
            orjson.loads(asked),
            name,
            None if context == NO_CONTEXT else context,
            housekeeping=bool(self.kinds[row] & HOUSEKEEPING),
        )
        return text, outcome(orjson.loads(answered[0]) if answered else {}, failure)

    @cached_property
    def names(self) -> dict[int, Name]:
        """Who is called, by the row of the request; once all was read."""
        assert self.run is not None
        return names_of(self.run.session)

    @property
    def start_ns(self) -> int:
        """Returns when the first message began; before the end, the first that was complete."""
        if self.run is None:
            return self.columns.time_ns[0]
        return self.columns.time_ns[int(self.run.session.order[0])]

    @property
    def paths(self) -> list[str]:
        """Returns the paths of the captures."""
        return [reader.path for reader in self.decoding.readers]

    @property
    def when_known(self) -> str:
        """Returns when that is known which needs the whole run."""
        if self.state == "failed":
            return "only where a capture can be read to its end"
        if not self.follows:
            return "once the whole capture was read"
        return (
            "once the capture has ended: Ctrl-C ends it"
            if self._make_end is None
            else "once the command has ended"
        )

    @property
    def state_words(self) -> str:
        """Returns how far the reading is; empty once all was read."""
        if self.state == "reading":
            if self.follows:
                return "ending" if self._ends else LIVE
            done, of = self.progress
            return f"reading {100 * done // of} %" if of else "reading"
        return {"finishing": "working out what belongs together", "failed": "reading ended early"}.get(
            self.state, ""
        )

    @property
    def known_labels(self) -> list[tuple[str, str]]:
        """Returns the labels of all pipes, as known by now."""
        return list(self._labels.values())

    def labels(self, pipe: int) -> tuple[str, str]:
        """Returns who is at the server's and the client's end of a pipe, as known by now."""
        return self._labels[pipe]

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
            server, client = map(end_label, self._labels[pipe])
        return (client, server) if forth else (server, client)

    def told(self, row: int) -> str:
        """Returns who sent a row's message to whom, and what happened."""
        return f"{join_ends(*self.ends(row))}  {self.texts([row])[0]}"

    def number(self, row: int) -> int:
        """Returns the number of a row's message; before the end, its row."""
        return row if self.run is None else int(self.run.session.index[row])

    def row_of(self, number: int) -> int | None:
        """Returns the row of a message by its number; None where there is none."""
        if not 0 <= number < self.count:
            return None
        return number if self.run is None else int(self.run.session.order[number])
