"""Which messages are marked, with notes on them.

In: notes as they are kept beside captures, messages as they come, changes. Out: row of a message → note,
empty where it is marked only. What is kept names messages by their places, so that a mark stays at its
message while numbers are not known yet, and whatever other captures are read with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.notes_file import MAX_NOTE, NotePlace, NotesFile
from rpcinspect.errors import OutputError
from rpcinspect.fields.phrases import counted
from rpcinspect.rpc.record import RpcRecord

MEMORY_ONLY = "marks and notes are kept until the end of this program only: the capture is no file"


class Marks(Mapping[int, str]):
    """The marks of captures that are read as one run."""

    def __init__(self, files: Sequence[NotesFile | None] | None = None) -> None:
        """`files`: of each capture; None: marks are kept in memory only."""
        self._files = files or ()
        self._rows: dict[int, str] = {}
        self._row_of: dict[tuple[int, NotePlace], int] = {}
        self._seen = 0
        """Rows among which notes of files were looked for."""
        self._news: list[str] = []
        self._told: set[str] = set()
        self._judged = False
        for file in self._files:
            if file is not None and file.why:
                self._tell(file.why)

    @classmethod
    def beside(cls, captures: Sequence[str]) -> Marks:
        """Returns those that are kept beside captures, of which some may be no files."""
        return cls([_notes_of(Path(one)) for one in captures])

    def __getitem__(self, row: int) -> str:
        return self._rows[row]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def has_news(self) -> bool:
        """Whether something is to be told."""
        return bool(self._news)

    def news(self) -> list[str]:
        """Returns what is worth telling since this was asked last."""
        told, self._news = self._news, []
        return told

    def toggle(self, record: RpcRecord) -> None:
        """Marks a message, or takes its mark and note away."""
        self._change(record, None if record.row in self._rows else "")

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
                    self._put(where, row)
                    found = True
        self._seen = last
        if reading.run is not None and not self._judged:
            self._judged = True
            self._judge()
        return found

    def _homeless(self) -> Iterator[tuple[int, NotePlace]]:
        """Yields places in files to which no message has come."""
        for capture, file in enumerate(self._files):
            for place in () if file is None else file.notes:
                if (capture, place) not in self._row_of and 0 <= place.offset < 1 << 63:
                    yield capture, place

    def _put(self, where: tuple[int, NotePlace], row: int) -> None:
        file = self._files[where[0]]
        assert file is not None
        self._row_of[where] = row
        self._rows[row] = file.notes[where[1]]

    def _judge(self) -> None:
        """Tells of notes that were made for something else, now that every message has come."""
        for capture, file in enumerate(self._files):
            if file is None or not file.notes:
                continue
            lost = sum((capture, place) not in self._row_of for place in file.notes)
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
        file = self._files[capture] if capture < len(self._files) else None
        if file is None:
            self._tell(MEMORY_ONLY)
        else:
            file.change(place, note)
            if file.why:
                self._tell(file.why)
            self._follow(capture, file)
        self._row_of[where] = record.row
        if note is None:
            self._rows.pop(record.row, None)
        else:
            self._rows[record.row] = note

    def _follow(self, capture: int, file: NotesFile) -> None:
        """Takes over what another browser has changed in a file."""
        for where, row in list(self._row_of.items()):
            if where[0] == capture:
                if where[1] in file.notes:
                    self._rows[row] = file.notes[where[1]]
                else:
                    self._rows.pop(row, None)
                    del self._row_of[where]
        if any(self._homeless()):
            self._seen = 0

    def _tell(self, what: str) -> None:
        """Has something told once."""
        if what not in self._told:
            self._told.add(what)
            self._news.append(what)


def _notes_of(capture: Path) -> NotesFile | None:
    try:
        return NotesFile(capture) if str(capture) != "-" and capture.is_file() else None
    except (OSError, ValueError, OutputError):
        return None  # who reads the capture reports it better


def _place(record: RpcRecord) -> tuple[int, NotePlace]:
    """Returns the capture of a message, and where it begins in it."""
    at = record.location
    assert at.capture is not None
    assert at.offset is not None
    kind = record.rpc.message.type
    return at.capture, NotePlace(offset=at.offset, type=kind, packet=at.packet, flow=at.flow)
