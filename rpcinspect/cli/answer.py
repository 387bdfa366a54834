"""Answers to questions about a whole run, as a table, as lines or as a document of JSON; and files for other
programs that tell of one.

In: the options of a command, and how its answer is counted and written. Out: the answer on standard output or
in a file, and the exit code. With a filter the answer is narrowed to what matching messages take part in, and
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from rpcinspect import exit_codes
from rpcinspect.cli.inputs import Inputs, read_run, say_what_is_unread
from rpcinspect.cli.options import QuestionOptions, ShownOptions
from rpcinspect.cli.output import open_console, open_output, say_if_empty
from rpcinspect.cli.progress import writing_bar
from rpcinspect.fields.phrases import printable_json
from rpcinspect.fields.plain import Json
from rpcinspect.run.run import RunModel
from rpcinspect.views.jsonl.document import answer_pieces
from rpcinspect.views.jsonl.lines import filter_json, lines

if TYPE_CHECKING:
    from rpcinspect.filter.matches import Shown


class Answer(Struct, frozen=True, kw_only=True):
    """A way to answer a question: from what, and how the answer is written."""

    noun: str
    """What the answer tells of."""
    count: Callable[[RunModel], int]
    """How many of these."""
    show: Callable[[RunModel, Console], None]
    json: Callable[[RunModel], Iterable[Json]]
    kinds: tuple[str, ...]
    """Of the objects, that are lists in a document."""
    shows: Callable[[RunModel], bool] = lambda run: False
    """Whether a table says something although there are none to count."""
    failed: Callable[[RunModel], bool] = lambda run: False
    """Whether the exit code is 1."""


def answer(asked: QuestionOptions) -> int:
    """Reads everything and answers; returns the exit code."""
    how, failed = asked.how(), False

    def write(run: RunModel, shown: Shown | None) -> None:
        nonlocal failed
        failed = how.failed(run)
        part = part_of(run, shown)
        if asked.format == "table":
            with open_console(asked.output) as console:
                _show(how, part, shown, console)
            return
        objects = _objects(how, part, shown)
        pieces = answer_pieces(how.kinds, objects) if asked.format == "json" else (lines(iter(objects)),)
        with open_output(asked.output) as output:
            output.writelines(map(printable_json, pieces))

    return over_run(asked, write) or (exit_codes.DIFFERENT if failed else exit_codes.OK)


def write_file(asked: ShownOptions, pieces: Callable[[RunModel, Shown | None], Iterable[bytes]]) -> int:
    """Reads everything and writes a file for another program, piece by piece; returns the exit code."""

    def write(run: RunModel, shown: Shown | None) -> None:
        written = 0
        with open_output(asked.output) as output, writing_bar(asked.output) as progress:
            for piece in pieces(run, shown):
                written += output.write(piece)
                progress(written, None)

    return over_run(asked, write)


def over_run(asked: ShownOptions, write: Callable[[RunModel, Shown | None], None]) -> int:
    """Reads everything into a run and has it written; returns the exit code."""
    chosen = asked.chosen()
    with ExitStack() as stack:
        inputs = Inputs(asked, stack)
        decoding = stack.enter_context(inputs.decoding())
        with inputs.ends_by_key(decoding) as interrupt:
            run, shown = read_run(decoding, chosen)
            say_if_empty(run.session)
            write(run, shown)
        say_what_is_unread(decoding)
    return exit_codes.INTERRUPTED if interrupt.pressed else exit_codes.OK


def part_of(run: RunModel, shown: Shown | None) -> RunModel:
    """Returns what the filter has picked of a run; without one all of it."""
    return run if shown is None else run.narrowed(shown.rows, shown.touched)


def _objects(how: Answer, run: RunModel, shown: Shown | None) -> Iterable[Json]:
    if shown is None:
        return how.json(run)
    name = f"{how.noun.replace(' ', '_')}s"
    some, of = how.count(run), how.count(run.whole)
    return chain(how.json(run), [{"kind": "filter", **filter_json(shown, {name: some}, {name: of})}])


def _show(how: Answer, run: RunModel, shown: Shown | None, console: Console) -> None:
    if shown is None:
        how.show(run, console)
        return
    some, of = how.count(run), how.count(run.whole)
    if some or not of or how.shows(run):
        how.show(run, console)
        console.file.write("\n")
    words = Text(shown.words(some, of, how.noun), style="bold")
    console.print(words, soft_wrap=not console.is_terminal)


def start_ns(run: RunModel) -> int:
    """Returns what times count from: the first message; without any, the first packet."""
    session = run.session
    packets = (capture.first_time_ns for capture in session.captures if capture.first_time_ns is not None)
    return min(session.messages.time_ns or packets, default=0)
