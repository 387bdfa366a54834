"""`rpcinspect replay --plan`: decodes a capture and says what a replay would do. Starts nothing, runs
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rpcinspect import exit_codes
from rpcinspect.commands.output import open_console, open_output, overwritten_input, say
from rpcinspect.opened import OpenSession
from rpcinspect.replay.gate import Allowance, Gate
from rpcinspect.replay.model import Plan
from rpcinspect.replay.plan import PlanOptions, plan
from rpcinspect.replay.sources import Sources
from rpcinspect.rpc.types import LOCAL_ID_BITS, pack_id
from rpcinspect.views.phrases import printable_json

NOT_YET = "replaying is not there yet: --plan says what would be sent, and starts nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asked for; see `cli.replay` for the meaning of each."""

    files: tuple[str, ...]
    plan: bool = False
    roles: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    context: str | None = None
    allow: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    main: Path | None = None
    trust: bool = False
    jsonl: bool = False
    output: Path | None = None


def run(request: Request) -> int:
    """Plans and writes; returns the exit code."""
    mistake = _mistake(request)
    if mistake is not None:
        say(mistake)
        return exit_codes.USAGE
    gate = Gate(
        [found for found in map(Allowance.parse, request.allow) if found is not None],
        Sources(request.main, request.paths),
    )
    options = PlanOptions(
        roles=_names(request.roles),
        live=_names(request.live),
        context=None if request.context is None else context_id(request.context),
        trust=request.trust,
    )
    with OpenSession(request.files) as opened:
        made = plan(opened.session, opened.messages(), options, gate)
    _write(request, made)
    if request.trust and any(not use.allowed for use in made.globals):
        say("--trust-capture: a replay would run what this capture names, whatever it is")
    return exit_codes.OK


def context_id(value: str) -> int | None:
    """The context id of `281474976710657` or `1:1` (creator:counter, as the table shows it)."""
    creator, colon, counter = value.partition(":")
    if not all(part.isascii() and part.isdigit() for part in ((creator, counter) if colon else (creator,))):
        return None
    if not colon:
        number = int(creator)
        return number if number < 1 << 63 else None
    if int(creator) >= 1 << 16 or int(counter) >= 1 << LOCAL_ID_BITS:
        return None
    return pack_id(int(creator), int(counter))


def _mistake(request: Request) -> str | None:
    """What is wrong with the options, in one line."""
    if not request.plan:
        return NOT_YET
    if not request.files:
        return "no capture is named: give FILE, or - for standard input"
    if request.files.count("-") > 1:
        return "standard input can be read only once"
    if request.roles and request.live:
        return "--role and --live can't be used together: each says who the others are"
    for allowed in request.allow:
        if Allowance.parse(allowed) is None:
            return f"--allow {allowed}: not MODULE or MODULE:NAME"
    if request.context is not None and context_id(request.context) is None:
        return f"--context {request.context}: not a context id, such as 3 or 0:3"
    overwritten = overwritten_input(request.output, request.files)
    return None if overwritten is None else f"{overwritten}: is an input, --output would overwrite it"


def _names(given: tuple[str, ...]) -> tuple[str, ...]:
    """Names from options that may be repeated and may hold several, separated by commas."""
    names = [name.strip() for value in given for name in value.split(",")]
    return tuple(dict.fromkeys(name for name in names if name))


def _write(request: Request, made: Plan) -> None:
    if request.jsonl:
        from rpcinspect.views.plan_json import plan_lines

        with open_output(request.output) as output:
            output.write(printable_json(plan_lines(made)))
        return
    from rpcinspect.views.plan_table import show_plan

    with open_console(request.output) as console:
        show_plan(made, console)
