"""Which messages are marked, with notes on them.

In: notes as they are kept beside captures, messages as they come, changes. Out: row of a message → note,
empty where it is marked only. What is kept names messages by their places, so that a mark stays at its
message while numbers are not known yet, and whatever other captures are read with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.notes_file import MAX_NOTE, NotePlace, NotesFile, NotesInMemory
from rpcinspect.errors import OutputError
from rpcinspect.fields.phrases import counted
from rpcinspect.rpc.record import RpcRecord


class Marks(Mapping[int, str]):
    """The marks of captures that are read as one run."""

    def __init__(self, notes: Sequence[NotesInMemory] = ()) -> None:
        """`notes` on each capture, as far as they are kept in files."""
        self._notes = defaultdict(NotesInMemory, enumerate(notes))
        self._places: dict[int, tuple[int, NotePlace]] = {}
        """Of rows on which there are notes, or were."""
        self._seen = 0
        """Rows among which notes of files were looked for."""
        self.news: list[str] = []
        """What is to be told; whoever tells it clears it."""
        self._told: set[str] = set()
        self._judged = False
        for one in notes:
            if isinstance(one, NotesFile) and one.why:
                self._tell(one.why)

    @classmethod
    def beside(cls, captures: Sequence[str]) -> Marks:
        """Returns those that are kept beside captures, of which some may be no files."""
        return cls([_notes_of(Path(one)) for one in captures])

    def __getitem__(self, row: int) -> str:
        capture, place = self._places[row]
        return self._notes[capture].notes[place]

    def __iter__(self) -> Iterator[int]:
        for row, (capture, place) in self._places.items():
            if place in self._notes[capture].notes:
                yield row

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def toggle(self, record: RpcRecord) -> None:
        """Marks a message, or takes its mark and note away."""
        self._change(record, None if record.row in self else "")

    def note(self, record: RpcRecord, text: str) -> None:
        """Keeps a note on a message, which marks it."""
        self._change(record, text[:MAX_NOTE])

    def find(self, reading: GrowingRun) -> bool:
        """Puts notes to their messages as far as these have come; returns whether any was."""
        found, last = False, reading.count
        wanted = [*self._homeless()] if self._seen < last else []
        if wanted:
            offsets = np.array(reading.columns.offset[self._seen : last], np.int64)
            places = np.array([place.offset for _, place in wanted], np.int64)
            missing = {*wanted}
            for row in (np.flatnonzero(np.isin(offsets, places)) + self._seen).tolist():
                where = _place(reading.record(row))
                if where in missing:
                    self._places[row] = where
                    found = True
        self._seen = last
        if reading.run is not None and not self._judged:
            self._judged = True
            self._judge()
        return found

    def _homeless(self) -> Iterator[tuple[int, NotePlace]]:
        """Yields places with notes to which no message has come."""
        known = {*self._places.values()}
        for capture, its in self._notes.items():
            for place in its.notes:
                if (capture, place) not in known and 0 <= place.offset < 1 << 63:
                    yield capture, place

    def _judge(self) -> None:
        """Tells of notes that were made for something else, now that every message has come."""
        known = {*self._places.values()}
        for capture, file in self._notes.items():
            if not file.notes:
                continue
            lost = sum((capture, place) not in known for place in file.notes)
            of = counted(len(file.notes), "note")
            changed = (
                f"{file.capture.name} has changed since its notes were written" if file.is_of_another else ""
            )
            if lost:
                has = f"{file.path.name}: {lost:,} of {of} name messages that were not read here"
                self._tell("; ".join(filter(None, (changed, has))))
            elif changed:
                self._tell(f"{changed}; the messages of all {of} are still there")

    def _change(self, record: RpcRecord, note: str | None) -> None:
        capture, place = where = _place(record)
        self._notes[capture].change(place, note)
        if self._notes[capture].why:
            self._tell(self._notes[capture].why)
        self._places[record.row] = where
        if any(self._homeless()):  # what another browser has changed meanwhile
            self._seen = 0

    def _tell(self, what: str) -> None:
        """Has something told once."""
        if what not in self._told:
            self._told.add(what)
            self.news.append(what)


def _notes_of(capture: Path) -> NotesInMemory:
    try:
        return NotesFile(capture) if str(capture) != "-" and capture.is_file() else NotesInMemory()
    except (OSError, ValueError, OutputError):
        return NotesInMemory()  # who reads the capture reports it better


def _place(record: RpcRecord) -> tuple[int, NotePlace]:
    """Returns the capture of a message, and where it begins in it."""
    at = record.location
    assert at.capture is not None
    assert at.offset is not None
    kind = record.rpc.message.type
    return at.capture, NotePlace(offset=at.offset, type=kind, packet=at.packet, flow=at.flow)
