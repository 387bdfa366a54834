"""Answers to questions about a whole run, as a table, as lines or as a document of JSON; and files for other
programs that tell of one.

In: the options of a command, and its question. Out: the answer on standard output or
in a file, and the exit code. With a filter the answer is narrowed to what matching messages take part in, and
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING

from rpcinspect import exit_codes
from rpcinspect.cli.inputs import Inputs, read_run, say_what_is_unread
from rpcinspect.cli.options import QuestionOptions, ShownOptions
from rpcinspect.cli.output import open_console, open_output, say_if_empty, write_json
from rpcinspect.cli.progress import writing_bar
from rpcinspect.fields.plain import Json
from rpcinspect.run.run import RunModel
from rpcinspect.views.jsonl.document import answer_pieces
from rpcinspect.views.jsonl.lines import filter_json, lines
from rpcinspect.views.questions.question import Question, answer_parts
from rpcinspect.views.text.columns import show_lines

if TYPE_CHECKING:
    from rpcinspect.filter.matches import Shown


def answer(asked: QuestionOptions) -> int:
    """Reads everything and answers; returns the exit code."""
    how, failed = asked.question(), False
    every = getattr(asked, "show_all", False)

    def write(run: RunModel, shown: Shown | None) -> None:
        nonlocal failed
        part = part_of(run, shown)
        if asked.format == "table":
            with open_console(asked.output) as console:
                show_lines(answer_parts(how, part, shown, every), console)
        else:
            objects = _objects(how, part, shown)
            pieces = answer_pieces(how.kinds, objects) if asked.format == "json" else (lines(iter(objects)),)
            write_json(pieces, asked.output)
        failed = asked.finish(run)

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
            if not asked.shows_why_empty():
                say_if_empty(run.session)
            write(run, shown)
        say_what_is_unread(decoding)
    return exit_codes.INTERRUPTED if interrupt.pressed else exit_codes.OK


def part_of(run: RunModel, shown: Shown | None) -> RunModel:
    """Returns what the filter has picked of a run; without one all of it."""
    return run if shown is None else run.narrowed(shown.rows, shown.touched)


def _objects(how: Question, run: RunModel, shown: Shown | None) -> Iterable[Json]:
    if shown is None:
        return how.json(run)
    name = f"{how.noun.replace(' ', '_')}s"
    some, of = how.count(run, True), how.count(run.whole, True)
    return chain(how.json(run), [{"kind": "filter", **filter_json(shown, {name: some}, {name: of})}])
