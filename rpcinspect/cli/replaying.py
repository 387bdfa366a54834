"""A replay from the command line: decodes captures, plans, has the plan carried out, and says what came of
it. Where the gate refuses a name, nothing of the capture is run.

In: the options of `replay` or `join`. Out: the outcome on standard output or in a file, and the exit code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from rpcinspect import exit_codes
from rpcinspect.cli.ci_reports import report_results
from rpcinspect.cli.collector import imports_are_over
from rpcinspect.cli.guard import UsageMistake
from rpcinspect.cli.interrupt import ends_as_exits
from rpcinspect.cli.output import open_console, say, say_block, say_if_empty, write_json
from rpcinspect.cli.progress import ProgressBar, reading_bar
from rpcinspect.cli.replay_options import PlayOptions, SelectedOptions
from rpcinspect.cli.requirements import missing_cuda, missing_torch
from rpcinspect.errors import DeviceError, ReplayError
from rpcinspect.fields.phrases import counted
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.model import Plan
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.playing.outcome import ReplayOutcome
from rpcinspect.replayer.playing.report import Report, report
from rpcinspect.replayer.playing.stops import StopError
from rpcinspect.replayer.replayer import replay
from rpcinspect.replayer.workers.parent_process import ParentProcess
from rpcinspect.replayer.workers.seeds import unknown
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Session
from rpcinspect.views.ci.replay_cases import replay_suite


def replayed(command: PlayOptions, refusal: str | None = None, parent: ParentProcess | None = None) -> int:
    """Plans, replays, writes; returns the exit code. `refusal`: nothing is to be done, why. `parent`: of live
    workers, begun already; the gate decides whether it is told anything."""
    if refusal is not None:
        _read_options(command)  # what is wrong with these is told first
        say(refusal)
        return exit_codes.REFUSED
    with planned(command) as (made, run, options):
        if command.plan:
            return _planned(command, made)
        return carry_out_and_write(command, made, run, replace(options, parent=parent))


@contextmanager
def planned(command: PlayOptions) -> Iterator[tuple[Plan, RunModel, ReplayOptions]]:
    """Plans a replay; gives the plan, the run, and how to carry it out. Raises `UsageMistake` for
    what can't be carried out."""
    imports_are_over()
    gate, how, options = _read_options(command)
    ours = options.workers.interpreter is None
    lacking = missing_cuda() if options.devices.kind == "cuda" and ours and not command.plan else None
    if lacking is not None:
        raise UsageMistake(lacking)
    with opened(command) as run:
        made = plan(run, how, gate)
        say_if_empty(run.session)
        strange = unknown(options.seeds, (w for one in made.sessions for w in one.cast.live))
        if strange:
            raise UsageMistake(f"--seed {strange[0]}: no live worker has that name; see --plan")
        if command.trust and not command.plan and any(not use.allowed for use in made.globals):
            say("--trust-capture: live workers run everything that this capture names")
        yield made, run, options


def _read_options(command: PlayOptions) -> tuple[ExecutionPolicy, PlanOptions, ReplayOptions]:
    """Returns what may run, which requests are taken, and how. Raises `UsageMistake`."""
    files = command.user_files()
    return command.gate(files), command.plan_options(), command.replay_options(files)


@contextmanager
def opened(command: SelectedOptions) -> Iterator[RunModel]:
    """Reads the captures into a run, and prints where they end early."""
    with reading_bar() as progress:
        run = RunModel.open(command.files, command.decoding_options(audit=False, progress=progress))
    with run:
        for line in run.notices:
            say(line)
        yield run


def _planned(command: PlayOptions, made: Plan) -> int:
    if command.format == "jsonl":
        from rpcinspect.views.replay.plan_json import plan_lines

        write_json([plan_lines(made)], command.output)
    else:
        from rpcinspect.views.replay.plan_table import show_plan

        with open_console(command.output) as console:
            show_plan(made, console, control=command.show_all)
    if command.trust and any(not use.allowed for use in made.globals):
        say("--trust-capture: a replay would run everything that this capture names")
    return exit_codes.OK


def carry_out_and_write(command: PlayOptions, made: Plan, run: RunModel, options: ReplayOptions) -> int:
    """Carries a plan out, if nothing of it is refused, and writes the outcome; returns the exit code."""
    missing = missing_torch() if options.join is None and options.workers.interpreter is None else None
    if missing is not None and starts(made):
        raise UsageMistake(missing)
    outcome, error = carried_out(made, run, options)
    for index in () if outcome.interrupted else outcome.missed_stops:
        say(f"--stop-at {index}: nothing that live workers got was recognised as #{index}")
    result = report(outcome)
    _write(command, outcome, result, error)
    if error is not None and command.format == "jsonl":
        say_block(error)
    if command.require_all and result.lost:
        say(f"--require-all: {counted(result.lost, 'request')} skipped")
    code = exit_code(result, require_all=command.require_all)
    report_results(
        command,
        lambda: replay_suite(
            outcome,
            result,
            run,
            failed=code != exit_codes.OK,
            require_all=command.require_all,
            error=error,
        ),
    )
    return code


def starts(made: Plan) -> bool:
    """Whether anything is to be started for a plan."""
    return not made.refused and made.count("send") > 0


def carried_out(
    made: Plan, run: RunModel, options: ReplayOptions, what: str = "replaying"
) -> tuple[ReplayOutcome, str | None]:
    """Carries out a plan, with a bar that says `what`; returns what came of it, and why nothing could be
    started. Raises `DeviceError` and `StopError`."""
    if starts(made):
        try:
            with ProgressBar(what) as progress, ends_as_exits():
                if options.terminal is not None:
                    options.terminal.make_room = progress.close
                return replay(run, made, options, progress=progress, waiting=progress.waits, tell=say), None
        except (DeviceError, StopError):
            raise
        except ReplayError as failed:
            return _not_started(options, made, run.session), str(failed)
    return _not_started(options, made, run.session), None


def exit_code(result: Report, *, require_all: bool) -> int:
    """Returns that of the contract."""
    if result.verdict == "refused":
        return exit_codes.REFUSED
    if result.interrupted:
        return exit_codes.INTERRUPTED
    if not result.same or (require_all and result.lost):
        return exit_codes.DIFFERENT
    return exit_codes.OK


def _not_started(options: ReplayOptions, made: Plan, session: Session) -> ReplayOutcome:
    """Returns the outcome where nothing is to be started, or could be."""
    begin = min(session.messages.time_ns, default=0)
    end = max(session.messages.end_time_ns, default=0)
    return ReplayOutcome(
        plan=made,
        runs=(),
        engine=options.engine,
        device=options.devices.kind,
        wall_s=0.0,
        captured_wall_s=(end - begin) / 1e9,
    )


def _write(command: PlayOptions, outcome: ReplayOutcome, result: Report, error: str | None) -> None:
    if command.format == "jsonl":
        from rpcinspect.views.replay.replay_json import replay_lines

        write_json([replay_lines(outcome, result, error)], command.output)
        return
    from rpcinspect.views.replay.replay_table import show_replay

    with open_console(command.output) as console:
        show_replay(outcome, result, console, every_step=command.show_all, error=error)
