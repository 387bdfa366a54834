"""`rpcinspect replay`: decodes captures, plans, has the plan carried out, and says what came of it. With
`--plan`, or where the gate refuses a name, nothing is started; `--leave` only repairs a running group.
"""

from __future__ import annotations

from msgspec import structs

from rpcinspect import exit_codes
from rpcinspect.commands.arguments import names
from rpcinspect.commands.collector import imports_are_over
from rpcinspect.commands.installed import missing_torch
from rpcinspect.commands.interrupt import ends_as_exits
from rpcinspect.commands.output import open_console, open_output, say, say_block, say_if_empty, show_line
from rpcinspect.commands.progress import ProgressBar, reading_bar
from rpcinspect.commands.replay_request import Request, mistake
from rpcinspect.errors import DeviceError, ReplayError
from rpcinspect.fields.phrases import counted, printable_json
from rpcinspect.replayer.peers.running_group import StoreAddress, remove_dead
from rpcinspect.replayer.planning.model import Plan
from rpcinspect.replayer.planning.plan import plan
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.replayer.playing.outcome import ReplayOutcome
from rpcinspect.replayer.playing.report import Report, report
from rpcinspect.replayer.replayer import replay
from rpcinspect.replayer.workers.seeds import read_seeds, unknown
from rpcinspect.run.run import Run
from rpcinspect.session.model import Session

NO_YES = (
    "refused: a group that is joined RUNS what the capture sends, with all that its workers may do, and is "
    "changed by it; if it may, say --yes-join"
)


def run(request: Request) -> int:
    """Plans, replays, writes; returns the exit code."""
    imports_are_over()
    wrong = mistake(request)
    if wrong is not None:
        say(wrong)
        return exit_codes.USAGE
    if request.connect is not None and not (request.yes_join or request.plan):
        say(NO_YES)
        return exit_codes.REFUSED
    if request.leave:
        return leave(request)
    sources = request.sources()
    gate = request.gate(sources)
    with _opened(request) as opened:
        for line in opened.ended_early:
            say(line)
        if request.export is not None:
            from rpcinspect.commands.export import export

            return export(request, opened)
        made = plan(opened, request.plan_options(), gate)
        say_if_empty(opened.session)
        strange = unknown(read_seeds(request.seeds), (w for one in made.sessions for w in one.cast.live))
        if strange:
            say(f"--seed {strange[0]}: no live worker is called so; see --plan")
            return exit_codes.USAGE
        if request.plan:
            return _planned(request, made)
        if request.trust and any(not use.allowed for use in made.globals):
            say("--trust-capture: live workers run what this capture names, whatever it is")
        return _replayed(request, made, opened, sources)


def _opened(request: Request) -> Run:
    with reading_bar() as progress:
        return Run.open(request.files, request.decoding_options(progress))


def _planned(request: Request, made: Plan) -> int:
    if request.jsonl:
        from rpcinspect.views.replay.plan_json import plan_lines

        with open_output(request.output) as output:
            output.write(printable_json(plan_lines(made)))
    else:
        from rpcinspect.views.replay.plan_table import show_plan

        with open_console(request.output) as console:
            show_plan(made, console, control=request.show_all)
    if request.trust and any(not use.allowed for use in made.globals):
        say("--trust-capture: a replay would run what this capture names, whatever it is")
    return exit_codes.OK


def _replayed(request: Request, made: Plan, opened: Run, sources: Sources) -> int:
    outcome, error = _not_started(request, made, opened.session), None
    if not made.refused and made.count("send"):
        missing = missing_torch() if request.connect is None else None
        if missing is not None:
            say(missing)
            return exit_codes.USAGE
        try:
            options = request.replay_options(sources)
            if not request.quiet_workers:
                options = structs.replace(options, show=show_line)
            with ProgressBar("replaying") as progress, ends_as_exits():
                outcome = replay(opened, made, options, progress=progress)
        except DeviceError as lacking:
            say(str(lacking))
            return exit_codes.USAGE
        except ReplayError as failed:
            error = str(failed)
    result = report(outcome)
    _write(request, outcome, result, error)
    if error is not None and request.jsonl:
        say_block(error)
    if request.require_all and result.lost:
        say(f"--require-all: {counted(result.lost, 'request')} skipped")
    return exit_code(result, require_all=request.require_all)


def exit_code(result: Report, *, require_all: bool) -> int:
    """Of the contract."""
    if result.verdict == "refused":
        return exit_codes.REFUSED
    if result.interrupted:
        return exit_codes.INTERRUPTED
    if not result.same or (require_all and result.lost):
        return exit_codes.DIFFERENT
    return exit_codes.OK


def _not_started(request: Request, made: Plan, session: Session) -> ReplayOutcome:
    """The outcome where nothing is to be started, or could be."""
    begin = min(session.messages.time_ns, default=0)
    end = max(session.messages.end_time_ns, default=0)
    return ReplayOutcome(
        plan=made,
        runs=(),
        engine=request.player,
        device=request.device,
        wall_s=0.0,
        captured_wall_s=(end - begin) / 1e9,
    )


def _write(request: Request, outcome: ReplayOutcome, result: Report, error: str | None) -> None:
    if request.jsonl:
        from rpcinspect.views.replay.replay_json import replay_lines

        with open_output(request.output) as output:
            output.write(printable_json(replay_lines(outcome, result, error)))
        return
    from rpcinspect.views.replay.replay_table import show_replay

    with open_console(request.output) as console:
        show_replay(outcome, result, console, every_step=request.show_all, error=error)


def leave(request: Request) -> int:
    """Takes workers that died out of a running group, and says what was done; returns the exit code."""
    store = StoreAddress.parse(request.connect or "")
    assert store is not None  # `mistake` has seen to it
    try:
        with ends_as_exits():
            done = remove_dead(store, names(request.leave))
    except ReplayError as error:
        say_block(f"nothing was changed: {error}")
        return exit_codes.DIFFERENT
    if done.token is not None:
        say(f"the group's token, which it had kept, is given back: {done.token}")
    for name in done.removed:
        say(f"{name} is no member any more")
    for name in done.untold:
        say(f"{name} did not answer and was not told: if it has ended, --leave {name} removes it too")
    return exit_codes.OK
