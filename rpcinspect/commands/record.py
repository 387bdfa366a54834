"""`rpcinspect record`: runs a command, records the RPC of every process in it, and says what was recorded.

In: a `Request`. Out: the exit code of the command. Lines of ours go to standard error, before the command
starts and after it has ended.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rpcinspect import exit_codes
from rpcinspect.commands.output import say
from rpcinspect.errors import CommandError, RecordError
from rpcinspect.recorder.mechanism import Mechanism
from rpcinspect.recorder.record import record
from rpcinspect.recorder.summary import summary
from rpcinspect.recorder.wire import Wire

ENDINGS = {"wire": ".pcap", "agent": ".rpclog"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for on the command line."""

    command: tuple[str, ...]
    output: Path | None = None
    via: str | None = None
    interface: str = "lo"
    private_net: bool = False


def run(request: Request) -> int:
    """Runs and records; the exit code is the command's."""
    if not request.command:
        say("record: which command? rpcinspect record [OPTIONS] -- COMMAND …")
        return exit_codes.USAGE
    mechanism = chosen(request)
    try:
        outcome = record(request.command, mechanism)
    except CommandError as error:
        say(str(error))
        return error.code
    for line in summary(outcome):
        say(line)
    return outcome.exit_code


def chosen(request: Request) -> Mechanism:
    """The way of recording; says which, and where it writes."""
    via = request.via or "wire"
    if via == "agent":
        raise RecordError("--via agent: not there yet; use --via wire")
    file = request.output or default_name(request.command[0], via)
    say(f"recording via {via} into {file}")
    return Wire(file, interface=request.interface, private_net=request.private_net)


def default_name(program: str, via: str) -> Path:
    """The program and the time, in the current folder: two recordings do not meet."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(f"{Path(program).name}-{stamp}{ENDINGS[via]}")
