"""The small file beside a capture that holds the marks and notes on its messages.

In: the path of a capture, changes. Out: place of a message → note, empty where it is marked only. The file is
JSON, written whole at each change; what another browser has written meanwhile stays. A file that holds
anything else is neither read nor written over. It goes with the last mark.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from rpcinspect.errors import OutputError
from rpcinspect.files.output import open_whole
from rpcinspect.files.place import writing

SUFFIX = ".rpcnotes"
MEMORY_ONLY = "marks and notes are kept until the end of this program only"
FORMAT = 1
MAX_FILE = 1 << 24
MAX_NOTES = 20_000
MAX_NOTE = 10_000
"""Characters."""


class NotePlace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a message begins: that stays where more is captured, or other captures are read too."""

    offset: int
    """In the stream; in a log, of the record."""
    type: int
    """Outermost message type."""
    packet: int | None = None
    flow: str | None = None


class _KeptNote(Struct, frozen=True, forbid_unknown_fields=True):
    place: NotePlace
    note: Annotated[str, Meta(max_length=MAX_NOTE)]


class _Version(Struct, frozen=True, forbid_unknown_fields=True):
    """Size and time of the capture when notes were written last: another one has other messages."""

    size: int
    mtime_ns: int


class _KeptNotes(Struct, forbid_unknown_fields=True):
    """The content of the file of notes, as JSON has it."""

    format: int
    capture: _Version
    notes: Annotated[list[_KeptNote], Meta(max_length=MAX_NOTES)]


class NotesInMemory:
    """The notes on what is no file: nothing of them stays."""

    capture = path = Path("-")
    why = f"{MEMORY_ONLY}: the capture is no file"
    """Why changes are not kept in a file."""
    is_of_another = False
    """Whether the capture has changed since the notes were written."""

    def __init__(self) -> None:
        self.notes: dict[NotePlace, str] = {}

    def change(self, place: NotePlace, note: str | None) -> None:
        """Keeps a note; None takes it away."""
        if note is None:
            self.notes.pop(place, None)
        else:
            self.notes[place] = note


class NotesFile(NotesInMemory):
    """The notes on one capture."""

    why = ""

    def __init__(self, capture: Path) -> None:
        """Reads what is kept; whatever that is, it raises nothing."""
        super().__init__()
        self.capture = capture
        self.path = capture.with_name(capture.name + SUFFIX)
        kept = self._read()
        if kept is not None:
            self.is_of_another = kept.capture != self._version()

    def change(self, place: NotePlace, note: str | None) -> None:
        """Keeps a note, in memory at least; None takes it away."""
        if not self.why:
            self._read()
        super().change(place, note)
        if not self.why:
            try:
                self._write()
            except (OSError, OutputError, ValueError) as error:
                self.why = f"{MEMORY_ONLY}: {error}"

    def _read(self) -> _KeptNotes | None:
        try:
            data = _content(self.path)
            if data is None:
                self.notes = {}
                return None
            kept = msgspec.json.decode(data, type=_KeptNotes)
            if kept.format != FORMAT:
                raise ValueError("of another version of this program")
        except (OSError, ValueError, RecursionError) as error:
            self.why = f"{self.path} is neither read nor written over: {error}"
            return None
        self.notes = {one.place: one.note for one in kept.notes}
        return kept

    def _write(self) -> None:
        if not self.notes:
            self.path.unlink(missing_ok=True)
            return
        notes = [_KeptNote(place, note) for place, note in sorted(self.notes.items(), key=_in_order)]
        kept = msgspec.json.encode(_KeptNotes(FORMAT, self._version(), notes))
        data = msgspec.json.format(kept) + b"\n"
        if len(notes) > MAX_NOTES or len(data) > MAX_FILE:
            raise ValueError(f"{self.path} holds {MAX_NOTES:,} notes and {MAX_FILE:,} bytes at most")
        with open_whole(self.path, private=True) as output:
            output.write(data)

    def _version(self) -> _Version:
        with writing(self.capture):
            found = self.capture.stat()
        return _Version(found.st_size, found.st_mtime_ns)


def _content(path: Path) -> bytes | None:
    """Returns what stands in a file, None where there is none; waits for nobody, reads nothing endless."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no file")
        if found.st_size > MAX_FILE:
            raise ValueError(f"it is larger than {MAX_FILE:,} bytes")
        return file.read(MAX_FILE)


def _in_order(item: tuple[NotePlace, str]) -> tuple[int, int, str]:
    place = item[0]
    return place.packet or 0, place.offset, place.flow or ""
