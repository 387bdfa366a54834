"""`replay --against`: one capture by two sources, message by message.

In: the options of `replay`. Out: the table or JSON Lines, and the worse exit code of the two. The gate judges
each source by itself; where it refuses a name of one, nothing of them is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rpcinspect.cli.guard import UsageMistake
from rpcinspect.cli.output import open_console, say, write_json
from rpcinspect.cli.replaying import carried_out, carry_out_and_write, exit_code, planned
from rpcinspect.replayer.against import KEPT_BYTES, SourceResult, pairs
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.planning.model import Plan
from rpcinspect.replayer.planning.plan import plan
from rpcinspect.replayer.playing.inputs import KeptMessages
from rpcinspect.replayer.playing.report import report
from rpcinspect.replayer.workers.parent_process import ParentProcess
from rpcinspect.run.run import RunModel

if TYPE_CHECKING:
    from rpcinspect.cli.replay import ReplayCommand


def replayed_against(
    command: ReplayCommand, parent: ParentProcess | None, parent_of_other: ParentProcess | None
) -> int:
    """Replays by both sources and compares; returns the exit code. The parents of live workers may have begun
    already, as in `replayed`."""
    other = second_source(command)
    if not _replaces_something(command):
        what = "replaces no file of --path or --main: both replays may run the same code"
        say(f"--against {command.against} {what}")
    with planned(command) as (made, run, options):
        files = other.user_files()
        others = plan(run, other.plan_options(), other.gate(files))
        for refused, source, its in ((made, command, options), (others, other, other.replay_options(files))):
            if refused.refused:
                say(f"by {label(source)}:")
                return carry_out_and_write(source, refused, run, its)
        first = _result(command, made, run, replace(options, parent=parent))
        its = other.replay_options(files)
        second = _result(other, others, run, replace(its, parent=parent_of_other))
        found = list(pairs(first, second, options.rules))
    if command.format == "jsonl":
        from rpcinspect.views.replay.against import against_lines

        write_json([against_lines(first, second, found)], command.output)
    else:
        from rpcinspect.views.replay.against import show_against

        with open_console(command.output) as console:
            show_against(first, second, found, console, every=command.show_all)
    return max(exit_code(one.report, require_all=command.require_all) for one in (first, second))


def second_source(command: ReplayCommand) -> ReplayCommand:
    """Returns the same command with the other source: a folder comes before those of `--path`, and the script
    of `--main` is taken from it where it is there; a file is the script."""
    other = command.against
    assert other is not None
    if other.is_file():
        return replace(command, main=other)
    if not other.is_dir():
        raise UsageMistake(f"--against {other}: there is no such file or folder")
    main = command.main
    found = None if main is None else _counterpart(main, command.paths, other)
    return replace(command, paths=[other, *command.paths], main=main if found is None else found)


def _counterpart(main: Path, paths: list[Path], other: Path) -> Path | None:
    """Returns the script of the same place, or at least of the same name, in another folder."""
    inside = [path for path in paths if main.resolve().is_relative_to(path.resolve())]
    places = [*(main.resolve().relative_to(path.resolve()) for path in inside), Path(main.name)]
    return next((other / place for place in places if (other / place).is_file()), None)


def _replaces_something(command: ReplayCommand) -> bool:
    """Returns whether the other source is a script, or has another file where the first source has one."""
    other, main = command.against, command.main
    assert other is not None
    places = [*command.paths, *([] if main is None else [main.parent])]
    if other.is_file():
        return True
    replaced = ((file, place / file.relative_to(other)) for file in other.rglob("*.py") for place in places)
    return any(old.is_file() and not old.samefile(file) for file, old in replaced)


def label(command: ReplayCommand) -> str:
    """What was given for a source: `--path ./src --main train.py`."""
    words = [f"--path {path}" for path in command.paths]
    return " ".join([*words, *([] if command.main is None else [f"--main {command.main}"])])


def _result(command: ReplayCommand, made: Plan, run: RunModel, options: ReplayOptions) -> SourceResult:
    kept = replace(options, kept=KeptMessages(KEPT_BYTES))
    outcome, error = carried_out(made, run, kept, f"replaying by {label(command)}")
    return SourceResult(label=label(command), outcome=outcome, report=report(outcome), error=error)
