"""Marks and notes on messages, kept in a small file beside the capture, never in it.

In: the path of a capture. Out: message → note, empty where it is marked only. The file is JSON, written whole
at each change, and goes with the last mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from rpcinspect.files.output import open_whole

SUFFIX = ".rpcnotes"
FORMAT = 1
MAX_FILE = 1 << 24


class _Kept(Struct, forbid_unknown_fields=True):
    """What stands in the file."""

    format: int
    notes: dict[int, str]


class Marks(Mapping[int, str]):
    """The marks of a capture."""

    def __init__(self, path: Path | None) -> None:
        """`path`: of the file; None: marks are kept in memory only."""
        self.path = path
        self.why = ""
        """Why what stands in the file was not read."""
        self._notes: dict[int, str] = {}
        if path is not None and path.exists():
            self._read(path)

    @classmethod
    def of(cls, capture: str) -> Marks:
        """Returns those that are kept beside a capture."""
        return cls(Path(f"{capture}{SUFFIX}"))

    def _read(self, path: Path) -> None:
        try:
            if path.stat().st_size > MAX_FILE:
                raise ValueError("too large")
            kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
            if kept.format != FORMAT:
                raise ValueError("of another version")
            self._notes = kept.notes
        except (OSError, ValueError) as error:
            self.why = f"{path}: not read, and not written over: {error}"
            self.path = None

    def __getitem__(self, number: int) -> str:
        return self._notes[number]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._notes))

    def __len__(self) -> int:
        return len(self._notes)

    def toggle(self, number: int) -> None:
        """Marks a message, or takes its mark and note away."""
        if number in self._notes:
            del self._notes[number]
        else:
            self._notes[number] = ""
        self._write()

    def note(self, number: int, text: str) -> None:
        """Keeps a note on a message, which marks it."""
        self._notes[number] = text
        self._write()

    def after(self, number: int) -> int | None:
        """Returns the next message with a mark, the first again after the last; None where there is none."""
        later = [one for one in self if one > number]
        return min(later or self, default=None)

    def _write(self) -> None:
        if self.path is None:
            return
        if not self._notes:
            self.path.unlink(missing_ok=True)
            return
        kept = _Kept(FORMAT, dict(sorted(self._notes.items())))
        with open_whole(self.path, private=True) as output:
            output.write(msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
