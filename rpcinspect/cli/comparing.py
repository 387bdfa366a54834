"""Two runs compared from the command line: decodes both, compares them and says where they part.

In: the options of `diff`. Out: the comparison on standard output or in a file, and the exit code.
"""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from rpcinspect import exit_codes
from rpcinspect.cli.arguments import names
from rpcinspect.cli.ci_reports import report_results
from rpcinspect.cli.collector import imports_are_over
from rpcinspect.cli.compare_options import captures_of
from rpcinspect.cli.diff import DiffCommand
from rpcinspect.cli.guard import UsageMistake
from rpcinspect.cli.output import open_console, open_output, say, say_if_empty, write_json
from rpcinspect.cli.progress import ProgressBar, reading_bar
from rpcinspect.diff.compare import check_messages, compare_runs
from rpcinspect.diff.model import Comparison
from rpcinspect.equality.rules import Rules
from rpcinspect.fields.phrases import packed, some
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import AutogradContext
from rpcinspect.views.ci.diff_cases import diff_suite

MAX_LISTED = 8
"""Workers, or contexts, that are named where another one was asked for."""


def compared(command: DiffCommand) -> int:
    """Compares and writes; returns the exit code."""
    imports_are_over()
    rules, ids = command.rules(), command.context_ids()
    with ExitStack() as stack:
        runs = [stack.enter_context(_opened(command, file)) for file in command.files]
        for label, opened in zip("ab", runs, strict=False):
            for line in opened.notices:
                say(line)
            say_if_empty(opened.session, f"{label}: ")
        a, b = runs[0], runs[-1]
        contexts = chosen_contexts(rules, ids, a, b)
        with ProgressBar("comparing") as progress:
            comparison = compare_runs(a, b, rules, contexts=contexts, progress=progress)
        _write(command, comparison, (a, b))
        report_results(command, lambda: diff_suite(comparison, (a, b)))
        if command.shrink is not None:
            _shrink(command, command.shrink, comparison, (a, b), contexts)
    return exit_codes.OK if comparison.same else exit_codes.DIFFERENT


def _opened(command: DiffCommand, file: str) -> RunModel:
    """Returns one of the two runs."""
    with reading_bar() as progress:
        return RunModel.open(captures_of(file), command.decoding_options(audit=False, progress=progress))


def chosen_contexts(
    rules: Rules, ids: list[int | None], a: RunModel, b: RunModel
) -> tuple[AutogradContext | None, AutogradContext | None]:
    """Returns the contexts of both runs that are compared; None: the whole run. Raises `CaptureError` where
    neither has a message, and `UsageMistake` for a worker or a context that there is not."""
    check_messages(a, b)
    _check_workers(rules, a, b)
    return _context(a, ids[:1]), _context(b, ids[-1:])


def _write(command: DiffCommand, comparison: Comparison, runs: tuple[RunModel, RunModel]) -> None:
    if command.format == "jsonl":
        from rpcinspect.views.diff.json_lines import diff_lines

        write_json([diff_lines(comparison)], command.output)
        return
    if command.format == "html":
        from rpcinspect.views.diff.page import diff_html

        page = list(diff_html(comparison, runs))  # a failure must not leave half a page
        with open_output(command.output) as output:
            output.writelines(page)
        return
    from rpcinspect.views.diff.table import show_diff

    with open_console(command.output) as console:
        show_diff(comparison, runs, console, show_all=command.show_all)


def _shrink(
    command: DiffCommand,
    path: Path,
    comparison: Comparison,
    runs: tuple[RunModel, RunModel],
    contexts: tuple[AutogradContext | None, AutogradContext | None],
) -> None:
    """Writes the part of a run that shows the first difference, and says how to look at it."""
    from rpcinspect.export.shrink import shrink

    if comparison.same:
        say(f"{path}: not written, since the runs are the same")
        return
    if comparison.unrelated:
        say(f"{path}: not written, since no part of either run shows where the two part: they are unrelated")
        return
    with open_output(path, private=True) as output:
        shrunk = shrink(comparison, *runs, output, contexts=contexts)
    assert shrunk is not None
    say(f"{path}: {len(shrunk.messages):,} of {shrunk.side}'s {shrunk.of:,} messages")
    files = [str(path), command.files[-1]] if shrunk.side == "a" else [command.files[0], str(path)]
    if shrunk.shows:
        again = replace(command, ignore=[*names(command.ignore), shrunk.ignore])
        say(f"the same difference: rpcinspect diff {shlex.join([*files, *again.options()])}")
    else:
        say(f"compared without the others, {shrunk.side}'s messages do not show the same difference first")


def _check_workers(rules: Rules, a: RunModel, b: RunModel) -> None:
    """Raises `UsageMistake` where a worker can't be renamed, since one run lacks it."""
    for old, new in rules.renames.items():
        for label, run, name in (("A", a, old), ("B", b, new)):
            there = sorted({worker.name for worker in run.workers if worker.name is not None})
            if name not in there:
                known = some(there, MAX_LISTED)
                raise UsageMistake(f"--rename {old}={new}: {label} has no worker {name}; it has {known}")


def _context(run: RunModel, ids: list[int | None]) -> AutogradContext | None:
    """Returns the context that is asked for; None: the whole run."""
    if not ids:
        return None
    for context in run.contexts:
        if context.context_id == ids[0]:
            return context
    asked = packed(ids[0] or 0)
    if not run.contexts:
        raise UsageMistake(f"--context {asked}: the capture has no autograd context")
    shown = some([packed(context.context_id) for context in run.contexts], MAX_LISTED)
    raise UsageMistake(f"--context {asked}: there is no such context, but {shown}")
