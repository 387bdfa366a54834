"""Where a command writes: standard output or a file, bytes or styled text; and lines for people on stderr.

In: what the command line named. Out: files and consoles; `OutputError` where the operating system refuses.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rpcinspect.errors import OutputError
from rpcinspect.views.phrases import printable

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """The file that output goes to; standard output if there is no path.

    To be opened once the input is known to be readable, so that one that can't be written is told before the
    work. What the file held goes with the first write: work that ends before costs no earlier output and
    leaves no empty file.
    """
    if path is None:
        with writing(None):
            yield sys.stdout.buffer
            sys.stdout.flush()
        return
    try:
        ours = not os.path.lexists(path)
        raw = _EmptiedLate(path, "ab")
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: can't be written: {getattr(error, 'strerror', None) or error}") from error
    try:
        with writing(path), io.BufferedWriter(raw) as file:
            yield file
            raw.empty()
    except BaseException:
        if ours and not raw.emptied:
            path.unlink(missing_ok=True)
        raise


class _EmptiedLate(io.FileIO):
    """A file that keeps what it holds until something else is written."""

    emptied = False

    def empty(self) -> None:
        if not self.emptied:
            self.emptied = True
            if stat.S_ISREG(os.fstat(self.fileno()).st_mode):  # not a pipe, a terminal, /dev/null
                self.seek(0)
                self.truncate()

    def write(self, data: Any, /) -> int:
        self.empty()
        return super().write(data)


@contextmanager
def writing(path: Path | None) -> Iterator[None]:
    """Makes a failed write, such as that of a full disk, an `OutputError`."""
    try:
        yield
    except OSError as error:
        where = "standard output" if path is None else str(path)
        raise OutputError(f"{where}: can't be written: {error.strerror or error}") from error


def temporary_folder() -> Path:
    """Where temporary files go; `OutputError` where none can be written."""
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise OutputError(
            f"{error.strerror}: is the disk full, or read-only? TMPDIR may name another folder"
        ) from error


def overwritten_input(output: Path | None, inputs: Sequence[str]) -> str | None:
    """The input that writing to `output` would destroy."""
    if output is None:
        return None
    for name in inputs:
        try:
            if name != "-" and output.exists() and os.path.samefile(output, name):
                return name
        except (OSError, ValueError):
            continue  # who opens it reports it better
    return None


@contextmanager
def open_console(path: Path | None) -> Iterator[Console]:
    """Styled text for what `open_output` opens; styles reach terminals only."""
    from rich.console import Console  # a tenth of the start, which JSON need not wait for

    with open_output(path) as output:
        if path is None:
            yield Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
            return
        text = io.TextIOWrapper(output, encoding="utf-8", errors="backslashreplace", write_through=True)
        try:
            yield Console(file=text, highlight=False, markup=False, emoji=False, soft_wrap=True)
        finally:
            text.detach()  # who opened the file closes it


def tell(lines: Iterable[str], path: Path | None) -> None:
    """Lines of plain text as all that is written, whatever they quote made harmless."""
    from rich.text import Text

    with open_console(path) as console:
        for line in lines:
            console.print(Text(printable(line)))


def give_up_stdout() -> None:
    """What is still buffered goes nowhere, so that the interpreter does not try to write it at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # a stand-in without a descriptor has nothing to lose


def say(line: str) -> None:
    """One line for people, whatever it quotes made harmless."""
    print(f"rpcinspect: {printable(line)}", file=sys.stderr)


def say_block(text: str) -> None:
    """Several lines for people, those below the first as they were quoted."""
    first, *rest = text.splitlines() or [""]
    say(first)
    for line in rest:
        print(f"  {printable(line)}", file=sys.stderr)
