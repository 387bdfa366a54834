"""Which messages a filter picks, while a capture is read and afterwards.

In: a filter and a capture that is being read. Out: a byte for each row that was looked at. Until the end a
message is judged by what is known by then; at its end all are judged once more, by everything.
"""

from __future__ import annotations

import threading

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.errors import RpcInspectError
from rpcinspect.fields.phrases import printable
from rpcinspect.fields.session import SoFar
from rpcinspect.filter.matches import Shown
from rpcinspect.filter.selection import CallSelection, Filter, Selection, StreamSelection
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.unexpected import fault

PAUSE_S = 0.03


class FilterRun:
    """A filter at work, in a thread of its own."""

    def __init__(self, reading: GrowingRun, chosen: Filter, *, of_calls: bool) -> None:
        """`of_calls`: a request and its answer match together."""
        self.reading = reading
        self.filter = chosen
        self.of_calls = of_calls
        self.rows = bytearray()
        """1 for each row that is picked, as far as they were looked at."""
        self.count = self.picked = 0
        """Rows that were looked at, and those of them that are picked."""
        self.shown: Shown | None = None
        """What is picked, once all is known."""
        self.why = ""
        """Why it was given up."""
        self._judged = 0
        """Rows that were judged by everything."""
        self._other: FilterRun | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rpcinspect filter", daemon=True)

    @property
    def finished(self) -> bool:
        """Returns whether every message was judged by all that is known at the end of the capture; until then
        `rows` says what is picked by what is known so far."""
        return self.shown is not None

    def start(self) -> None:
        """Starts the thread that looks at messages."""
        self._thread.start()

    def stop(self) -> None:
        """Has the filter's thread end before its next messages."""
        self._stop.set()
        if self._other is not None:
            self._other._stop.set()

    def wait(self, timeout_s: float) -> None:
        """Waits until everything was looked at."""
        self._thread.join(timeout_s)

    def like(self, *, of_calls: bool) -> FilterRun:
        """Returns the same filter at work on calls, or on messages, for which it means something else."""
        if of_calls == self.of_calls:
            return self
        if self._other is None:
            self._other = FilterRun(self.reading, self.filter, of_calls=of_calls)
            self._other._other = self
            self._other.start()
        return self._other

    @property
    def words(self) -> str:
        """Returns how many messages match, or how far the looking for them is."""
        text = printable(self.filter.text)
        if self.finished or self.reading.run is None:
            return f"{self.picked:,} match {text}"
        return f"filtering {100 * self._judged // max(1, self.reading.count)} %: {text}"

    def _run(self) -> None:
        try:
            self._so_far()
            self._at_the_end()
        except (RpcInspectError, OSError) as error:
            self.why = str(error)
        except Exception as error:
            self.why = fault(error)

    def _so_far(self) -> None:
        reading = self.reading
        known = SoFar(reading.decoding, ends=self._ends)
        stream = StreamSelection(self.filter, reading.decoding, known)
        goes_on = True
        while goes_on and not self._stop.is_set() and reading.run is None:
            goes_on = reading.state != "failed"  # asked before how many there are: the last ones count, too
            last = reading.count
            for record in reading.records(self.count, last):
                if reading.run is not None or self._stop.is_set():
                    return
                picked = stream.feed(record)
                self.rows.append(picked)
                self.picked += picked
                self.count = record.row + 1
            self._stop.wait(PAUSE_S)

    def _ends(self, record: RpcRecord) -> tuple[str, str]:
        return self.reading.labels(record.tp.pipe.number)

    def _at_the_end(self) -> None:
        run = self.reading.run
        if run is None:
            return
        kind = CallSelection if self.of_calls else Selection
        selection = kind(self.filter, self.reading.decoding.bytes_beside())
        rows = bytearray()
        for record in self.reading.records(0, self.reading.count):
            if self._stop.is_set():
                return
            rows.append(selection.feed(record))
            self._judged = len(rows)
        shown = selection.finish(run.session)
        self.rows, self.count = bytearray(shown.rows), len(shown.rows)
        self.picked = shown.count
        self.shown = shown
