"""What messages are exported as, and the commands of rpcinspect that write the same.

In: how captures were read, which messages are meant. Out: forms; for each a command line to paste, with its
words quoted so that a shell takes them as they are, whatever a file is called.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from rpcinspect.capture import DEFAULT_READING
from rpcinspect.pipeline import Options

FormName: TypeAlias = Literal["pcap", "rpclog", "jsonl", "safetensors", "notes"]
PROGRAM = "rpcinspect"


class ExportForm(Struct, frozen=True):
    """A form in which messages can be written: its name, its suffix, and the command of the same."""

    name: FormName
    about: str
    suffix: str
    """Of the name of the file."""
    words: tuple[str, ...] = ()
    """The command that writes the same, without captures; empty where none does."""
    output: str = ""
    """Its option for the file."""


FORMS = (
    ExportForm("pcap", "a capture, requests with their answers", ".pcap", ("decode",), "-w"),
    ExportForm("rpclog", "a log: the same without packets", ".rpclog", ("export", "rpclog"), "-o"),
    ExportForm("jsonl", "JSON lines", ".jsonl", ("decode", "--format", "jsonl"), "-o"),
    ExportForm("safetensors", "tensors, in a folder", "-tensors", ("export", "safetensors"), "-o"),
    ExportForm("notes", "a text: each message in a line, with the note on it", ".txt"),
)


class PasteLine(Struct, frozen=True):
    """A command line to paste, which does the same as an export."""

    about: str
    text: str


def paste_lines(
    captures: Sequence[str], options: Options, number: int | None, chosen: str, stem: str
) -> list[PasteLine]:
    """Returns commands that show some messages, and that write them in each form.

    `number`: of the message, where it is a single one; `chosen`: the filter, empty for all; `stem`: how
    files are called.
    """
    filtered = ["-f", chosen] if chosen else []
    files = [f"./{one}" if one.startswith("-") else one for one in captures]
    read = [*files, *_reading_words(options)]
    found = [PasteLine("show them", _joined(["decode", *read, *filtered]))]
    if number is not None:
        found.append(PasteLine("show it in full", _joined(["decode", *read, "--message", str(number)])))
    for form in (one for one in FORMS if one.words):
        words = [*form.words, *read, *filtered, form.output, f"{stem}{form.suffix}"]
        found.append(PasteLine(f"write {form.about}", _joined(words)))
    return found


def _reading_words(options: Options) -> list[str]:
    """Returns the options that captures were read with."""
    reading = options.reading
    words = []
    if reading.reader != DEFAULT_READING.reader:
        words += ["--reader", reading.reader]
    for preference in reading.preferences:
        words += ["--tshark-option", preference]
    for number, name in options.names.items():
        words += ["--worker", f"{number}={name}"]
    if reading.unpacking != DEFAULT_READING.unpacking:
        size = reading.unpacking.bytes
        words += ["--unpack-limit", "none" if size is None else str(size)]
    return words


def _joined(words: Sequence[str]) -> str:
    return " ".join(map(shell_word, [PROGRAM, *words]))


def shell_word(text: str) -> str:
    """Returns a word as a shell takes it; what is not plainly visible is escaped, as bash and zsh read it."""
    if text.isprintable():
        return shlex.quote(text)
    shown = (
        chr(one) if 0x20 <= one < 0x7F and one not in b"'\\" else f"\\x{one:02x}" for one in os.fsencode(text)
    )
    return f"$'{''.join(shown)}'"
