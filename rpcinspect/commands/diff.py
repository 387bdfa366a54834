"""`rpcinspect diff`: decodes two runs, compares them and says where they part."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from rpcinspect import exit_codes
from rpcinspect.commands.arguments import ReadingRequest, names, renames, wrong_tolerances
from rpcinspect.commands.collector import imports_are_over
from rpcinspect.commands.output import open_console, open_output, overwriting, say, say_if_empty
from rpcinspect.commands.progress import ProgressBar, reading_bar
from rpcinspect.diff.compare import check_messages, compare_runs
from rpcinspect.diff.model import Comparison
from rpcinspect.equality.rules import IGNORABLE, Rules
from rpcinspect.errors import RpcInspectError
from rpcinspect.fields.phrases import packed, printable_json, read_packed, some
from rpcinspect.pipeline import Options
from rpcinspect.run.run import Run
from rpcinspect.session.model import AutogradContext

MAX_LISTED = 8


class Request(ReadingRequest, frozen=True, kw_only=True):
    """What the command line asked for; see `cli.diff` for the meaning of each."""

    contexts: tuple[str, ...] = ()
    tolerance: bool = False
    rtol: float | None = None
    atol: float | None = None
    ignore: tuple[str, ...] = ()
    strict: bool = False
    renames: tuple[str, ...] = ()
    show_all: bool = False
    format: Literal["table", "jsonl", "html"] = "table"
    shrink: Path | None = None

    def rules(self) -> Rules:
        """What counts as a difference."""
        return Rules(
            rtol=self.rtol,
            atol=self.atol,
            by_dtype=self.tolerance,
            ignore=frozenset(names(self.ignore)),
            strict=self.strict,
            renames=renames(self.renames) or {},
        )

    def opened(self, file: str) -> Run:
        """One of the two runs."""
        with reading_bar() as progress:
            options = Options(audit=False, reading=self.reading(), progress=progress)
            return Run.open(_paths(file), options)


def run(request: Request) -> int:
    """Compares and writes; returns the exit code."""
    imports_are_over()
    mistake = _mistake(request)
    if mistake is not None:
        say(mistake)
        return exit_codes.USAGE
    with ExitStack() as stack:
        runs = [stack.enter_context(request.opened(file)) for file in request.files]
        for label, opened in zip("ab", runs, strict=False):
            for line in opened.ended_early:
                say(line)
            say_if_empty(opened.session, f"{label}: ")
        check_messages(*runs)
        a, b = runs[0], runs[-1]
        strange = _strange_workers(request, a, b)
        if strange is not None:
            say(strange)
            return exit_codes.USAGE
        contexts = _context(a, request.contexts[:1]), _context(b, request.contexts[-1:])
        with ProgressBar("comparing") as progress:
            comparison = compare_runs(a, b, request.rules(), contexts=contexts, progress=progress)
        _write(request, comparison, (a, b))
        if request.shrink is not None:
            _shrink(request, request.shrink, comparison, (a, b), contexts)
    return exit_codes.OK if comparison.same else exit_codes.DIFFERENT


def _write(request: Request, comparison: Comparison, runs: tuple[Run, Run]) -> None:
    if request.format == "jsonl":
        from rpcinspect.views.diff.json_lines import diff_lines

        with open_output(request.output) as output:
            output.write(printable_json(diff_lines(comparison)))
        return
    if request.format == "html":
        from rpcinspect.views.diff.page import diff_html

        page = list(diff_html(comparison, runs))  # a failure must not leave half a page
        with open_output(request.output) as output:
            output.writelines(page)
        return
    from rpcinspect.views.diff.table import show_diff

    with open_console(request.output) as console:
        show_diff(comparison, runs, console, show_all=request.show_all)


def _shrink(
    request: Request,
    path: Path,
    comparison: Comparison,
    runs: tuple[Run, Run],
    contexts: tuple[AutogradContext | None, AutogradContext | None],
) -> None:
    """Writes the part of a run that shows the first difference, and says how to look at it."""
    from rpcinspect.export.shrink import shrink

    if comparison.same:
        say(f"{path}: not written, since nothing makes the runs different")
        return
    if comparison.unrelated:
        say(f"{path}: not written, since no part of either run shows where the two part: they are unrelated")
        return
    with open_output(path, private=True) as output:
        shrunk = shrink(comparison, *runs, output, contexts=contexts)
    assert shrunk is not None
    say(f"{path}: {len(shrunk.messages):,} of {shrunk.side}'s {shrunk.of:,} messages")
    files = [str(path), request.files[-1]] if shrunk.side == "a" else [request.files[0], str(path)]
    if shrunk.shows:
        again = replace(request, ignore=(*request.ignore, shrunk.ignore))
        say(f"the same difference: rpcinspect diff {shlex.join([*files, *_options(again)])}")
    else:
        say(f"compared without the others, {shrunk.side}'s messages do not show the same difference first")


def _options(request: Request) -> list[str]:
    """The options that say how captures are read and what counts as a difference."""
    words = [f"--ignore={','.join(names(request.ignore))}"]
    words += [f"--context={context}" for context in request.contexts]
    words += [f"--rename={rename}" for rename in request.renames]
    words += ["--tolerance"] if request.tolerance else []
    words += [f"--rtol={request.rtol}"] if request.rtol is not None else []
    words += [f"--atol={request.atol}"] if request.atol is not None else []
    words += ["--strict"] if request.strict else []
    words += [f"--reader={request.reader}"] if request.reader != "auto" else []
    words += [f"--unpack-limit={request.unpack_limit}"] if request.unpack_limit is not None else []
    return words + [f"--tshark-option={option}" for option in request.tshark_options]


def _mistake(request: Request) -> str | None:
    """What is wrong with the arguments, in one line."""
    if not request.files:
        return "no capture is named: give A and B, or one capture and --context twice"
    if len(request.files) > 2:
        return "two runs can be compared: give A and B; several captures of one run as A1,A2"
    if len(request.files) == 1 and len(request.contexts) != 2:
        return "one capture is compared with itself only by two of its contexts: give --context twice, or B"
    if len(request.contexts) > 2:
        return "--context can be given twice: the first is a's, the second b's"
    for context in request.contexts:
        if read_packed(context) is None:
            return f"--context {context}: not a context id, such as 3 or 0:3"
    for name in names(request.ignore):
        if name not in IGNORABLE:
            return f"--ignore {name}: these can be ignored: {', '.join(sorted(IGNORABLE))}"
    for wrong in (*wrong_tolerances(request.rtol, request.atol), *request.wrong_reading()):
        return wrong
    given = renames(request.renames)
    if given is None or len(set(given.values())) < len(given):
        return "--rename: not OLD=NEW with each name once"
    paths = [path for file in request.files for path in _paths(file)]
    if paths.count("-") > 1:
        return "standard input can be read only once"
    for wrong in overwriting({"--output": request.output, "--shrink": request.shrink}, paths):
        return wrong
    if request.shrink is not None and request.shrink == request.output:
        return f"{request.shrink}: --output and --shrink can't both be written there"
    return None


MAX_WORKERS = 8


def _strange_workers(request: Request, a: Run, b: Run) -> str | None:
    """Why a worker can't be renamed: one run lacks it."""
    for old, new in (renames(request.renames) or {}).items():
        for label, opened, name in (("A", a, old), ("B", b, new)):
            there = sorted({worker.name for worker in opened.workers if worker.name is not None})
            if name not in there:
                return (
                    f"--rename {old}={new}: {label} has no worker {name}; it has {some(there, MAX_WORKERS)}"
                )
    return None


def _paths(file: str) -> tuple[str, ...]:
    """Several captures of one run are separated by commas; a file whose name has a comma is one."""
    if "," not in file or os.path.exists(file):
        return (file,)
    return tuple(part for part in file.split(",") if part)


def _context(opened: Run, given: tuple[str, ...]) -> AutogradContext | None:
    """The context that is asked for; None: the whole run."""
    if not given:
        return None
    number, contexts = read_packed(given[0]), opened.session.contexts
    for context in contexts:
        if context.context_id == number:
            return context
    if not contexts:
        raise RpcInspectError(f"--context {given[0]}: the capture has no autograd context")
    shown = some([packed(context.context_id) for context in contexts], MAX_LISTED)
    raise RpcInspectError(f"--context {given[0]}: there is no such context, but {shown}")
