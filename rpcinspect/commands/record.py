"""`rpcinspect record`: runs a command, records the RPC of every process in it, and says what was recorded.

In: a `Request`. Out: the exit code of the command. Lines of ours go to standard error, before the command
starts and after it has ended.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rpcinspect import exit_codes
from rpcinspect.commands.output import say
from rpcinspect.commands.recorded import look_into
from rpcinspect.errors import CommandError, RecordError
from rpcinspect.recorder.agent import Agent
from rpcinspect.recorder.mechanism import Mechanism, Recorded
from rpcinspect.recorder.notes import Note
from rpcinspect.recorder.record import record
from rpcinspect.recorder.summary import counted, summary
from rpcinspect.recorder.wire import Wire

ENDINGS = {"wire": ".pcap", "agent": ".rpclog"}
COMPRESSED = (".gz", ".zst")
SHOWN = 4
"""Workers of others that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for on the command line."""

    command: tuple[str, ...]
    output: Path | None = None
    via: str | None = None
    interface: str | None = None
    private_net: bool = False
    tensors: str | None = None
    when_full: str | None = None


def mistake(request: Request) -> str | None:
    """What is wrong with a request before anything was tried."""
    if not request.command:
        return "record: which command? rpcinspect record [OPTIONS] -- COMMAND …"
    output, via = request.output, request.via
    if output is not None:
        if str(output) == "-":
            return "-o -: standard output is the command's; name a file"
        if output.suffix in COMPRESSED:
            return f"-o {output}: recordings are not compressed; compress the file afterwards"
        for name, ending in ENDINGS.items():
            if output.suffix == ending and via not in (None, name):
                return f"-o {output}: --via {via} writes a {ENDINGS[str(via)]}"
    if _via(request) == "wire":
        for option, value in (("tensors", request.tensors), ("when-full", request.when_full)):
            if value is not None:
                return f"--{option} is for --via agent"
    if _via(request) == "agent":
        if request.interface is not None:
            return "--interface is for --via wire"
        if request.private_net:
            return "--private-net is for --via wire"
    return None


def run(request: Request) -> int:
    """Runs and records; the exit code is the command's."""
    wrong = mistake(request)
    if wrong is not None:
        say(wrong)
        return exit_codes.USAGE
    try:
        mechanism, file = chosen(request)
        outcome = record(
            request.command, mechanism, lambda: say(f"recording via {mechanism.via} into {file}")
        )
    except CommandError as error:
        say(str(error))
        return error.code
    recorded = outcome.recorded
    if recorded.packets is not None:
        strangers = not request.private_net and request.interface in (None, "lo")
        recorded = looked_into(recorded, outcome.notes, strangers=strangers)
    for line in summary(dataclasses.replace(outcome, recorded=recorded)):
        say(line)
    return outcome.exit_code


def _via(request: Request) -> str | None:
    """What was asked for, by name, by the name of the file, or by an option that only the wire has."""
    if request.via is not None:
        return request.via
    if request.output is not None:
        for via, ending in ENDINGS.items():
            if request.output.suffix == ending:
                return via
    return "wire" if request.private_net or request.interface is not None else None


def chosen(request: Request) -> tuple[Mechanism, Path]:
    """The way of recording, and where it writes: by default the agent, if it can be built."""
    via = _via(request)
    if via != "wire":
        file = request.output or default_name(request.command[0], "agent")
        try:
            return _agent(request, file), file
        except RecordError as error:
            if via == "agent":
                raise RecordError(f"--via agent: {error}") from error
            say(f"not recording via agent: {error}")
    file = request.output or default_name(request.command[0], "wire")
    return Wire(file, interface=request.interface or "lo", private_net=request.private_net), file


def _agent(request: Request, file: Path) -> Agent:
    return Agent(
        file,
        request.command,
        tensors=request.tensors or "all",
        when_full=request.when_full or "wait",
        tell=say,
    )


def default_name(program: str, via: str) -> Path:
    """The program and the time, in the current folder: two recordings do not meet."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(f"{Path(program).name}-{stamp}{ENDINGS[via]}")


def looked_into(recorded: Recorded, notes: Sequence[Note], *, strangers: bool) -> Recorded:
    """The same, with what the packets say: how many messages, and whose. `strangers`: workers that are not
    of this command are told of; on other interfaces they are expected."""
    held = look_into(recorded.file)
    if held is None:
        warnings = [f"{recorded.file} can't be read any more"] if recorded.ended_early is None else []
        return dataclasses.replace(recorded, warnings=warnings)
    words = counted(held.messages, "message")
    return dataclasses.replace(
        recorded,
        messages=words if held.complete else f"more than {words}",
        warnings=[*_none(held.why_none, notes), *(_others(held.workers, notes) if strangers else ())],
    )


def _none(why: str | None, notes: Sequence[Note]) -> Iterator[str]:
    if why is not None and any(note.recorded for note in notes):  # else it was said that nobody used RPC
        yield why


def _others(workers: frozenset[str], notes: Sequence[Note]) -> Iterator[str]:
    """Packets do not tell to which command they belong."""
    ours = {note.name for note in notes}
    others = sorted(workers - ours)
    if ours and others:
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        yield (
            f"workers that are not of this command were captured too: {', '.join(others[:SHOWN])}{more}; "
            "--private-net keeps them out"
        )
