"""Where a command writes: standard output or a file, bytes or styled text; and lines for people on stderr.

In: what the command line named. Out: files and consoles; `OutputError` where the operating system refuses.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

from rpcinspect.cli.github_log import InertText, inert, is_github_log
from rpcinspect.fields.phrases import counted, printable, printable_json, shorten
from rpcinspect.files.output import Growing, open_whole
from rpcinspect.files.place import writing
from rpcinspect.session.model import Session

MAX_NAME = 40
"""Of a name before a line."""
REASONS = ("invisible-transport", "failed-init", "no-rpc")
"""Codes of the findings that say why a capture has no messages."""
NOTHING = "No RPC messages"

if TYPE_CHECKING:
    from rpcinspect.views.text.console import TextConsole


@contextmanager
def open_output(
    path: Path | None, *, private: bool = False, grows: bool = False, silent: bool = False
) -> Iterator[BinaryIO]:
    """Opens the file for output; standard output if there is no path.

    To be opened once the input is known to be readable, so that one that can't be written is told before the
    work. What the file held stays until all is written, or, where it `grows` to be read meanwhile, until
    something is. `private`: holds what was captured as it was, so that a new file is only ours to read. Says
    what was written, unless `silent`.
    """
    if path is None:
        with writing(None):
            yield sys.stdout.buffer
            sys.stdout.flush()
    elif grows:
        with Growing(path, private=private) as raw:
            try:
                with writing(path), io.BufferedWriter(raw) as file:
                    yield file
                    raw.empty()
            except BaseException:
                raw.forget()
                raise
    else:
        with open_whole(path, private=private) as file:
            yield file
    if path is not None and not silent and path.is_file():
        say(f"wrote {path}, {counted(path.stat().st_size, 'byte')}")


def overwriting(outputs: Mapping[str, Path | None], inputs: Sequence[str]) -> Iterator[str]:
    """What is wrong with outputs, by their options: the first input that writing there would destroy."""
    for option, output in outputs.items():
        for name in inputs:
            if output is not None and _is_same(output, name):
                yield f"{name}: is an input, {option} would overwrite it"
                break


def written_twice(outputs: Mapping[str, Path | None]) -> Iterator[str]:
    """What is wrong with outputs, by their options: two that would be written to one place."""
    places: dict[Path, str] = {}
    for option, output in outputs.items():
        if output is not None:
            other = places.setdefault(output.absolute(), option)
            if other != option:
                yield f"{output}: {other} and {option} can't both be written there"


def _is_same(output: Path, name: str) -> bool:
    try:
        return name != "-" and output.exists() and os.path.samefile(output, name)
    except (OSError, ValueError):
        return False  # who opens it reports it better


@contextmanager
def open_console(path: Path | None, *, grows: bool = False) -> Iterator[TextConsole]:
    """Styled text for what `open_output` opens; styles reach terminals only."""
    from rpcinspect.views.text.console import console_for

    with open_output(path, grows=grows) as output:
        if path is None:
            file = cast("TextIO", InertText(sys.stdout)) if is_github_log() else None
            yield console_for(file)
            return
        text = io.TextIOWrapper(output, encoding="utf-8", errors="backslashreplace", write_through=True)
        try:
            yield console_for(text)
        finally:
            text.detach()  # who opened the file closes it


def write_json(pieces: Iterable[bytes], path: Path | None) -> None:
    """Writes JSON as all that is written, with what is not plainly visible escaped."""
    with open_output(path) as output:
        output.writelines(map(printable_json, pieces))


def tell(lines: Iterable[str], path: Path | None) -> None:
    """Lines of plain text as all that is written, whatever they quote made harmless."""
    with open_console(path) as console:
        for line in lines:
            console.print(printable(line))


def give_up_stdout() -> None:
    """What is still buffered goes nowhere, so that the interpreter does not try to write it at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # a stand-in without a descriptor has nothing to lose


def say(line: str) -> None:
    """Prints one line to standard error, with control characters escaped."""
    write_error(f"rpcinspect: {printable(line)}\n")


def say_block(text: str) -> None:
    """Prints several lines to standard error; lines below the first are indented."""
    first, *rest = text.splitlines() or [""]
    say(first)
    for line in rest:
        write_error(f"  {printable(line)}\n")


def show_line(name: str, line: str) -> None:
    """A line that another process has written, behind its name; harmless, whatever it holds."""
    write_error(f"{shorten(printable(name), MAX_NAME)} | {printable(line.expandtabs())}\n")


def write_error(text: str, *, commands: bool = False) -> None:
    """Writes to standard error; in a log of GitHub Actions, where the runner reads that too, nothing of it is
    a command, unless it is `commands`. Without Python's buffer: a thread that waits there for a reader would
    keep its lock, and nobody could end this process then."""
    if is_github_log() and not commands:
        text = inert(text)
    stream = sys.stderr.file if isinstance(sys.stderr, InertText) else sys.stderr
    try:
        number = stream.fileno() if isinstance(stream, io.TextIOWrapper) else None
    except ValueError:  # a stand-in without a descriptor
        number = None
    if number is None:  # so is the one of a progress bar, which shows the text above itself
        stream.write(text)
        stream.flush()
        return
    data = text.encode(stream.encoding, "backslashreplace")
    with suppress(OSError):  # who has closed it, or has no room, does without
        while data:
            data = data[os.write(number, data) :]


def empty_line(session: Session) -> str | None:
    """Returns why a capture has no messages, and what to do about it, in one line; None where it has some."""
    if session.totals.messages:
        return None
    findings = [finding for finding in session.findings if finding.code in REASONS]
    told = " ".join([part for finding in findings for part in (finding.text, finding.remedy) if part])
    return told if told.startswith(NOTHING) else f"{NOTHING}: {told}"


def say_if_empty(session: Session, label: str = "") -> None:
    """Prints why a capture has no messages, where it has none."""
    reason = empty_line(session)
    if reason is not None:
        say(f"{label}{reason}")
