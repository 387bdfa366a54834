"""What `rpcinspect doctor` does: runs the probes, each for some seconds, and says which commands work.

In: the options. Out: a table or one document of JSON, and exit code 0, whatever is missing. Whether a command
works follows from what the probes have found, and from nothing else.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType

import msgspec
from msgspec import Struct

from rpcinspect import exit_codes
from rpcinspect.cli.collector import imports_are_over
from rpcinspect.cli.doctor import DoctorCommand
from rpcinspect.cli.output import open_console, write_json
from rpcinspect.cli.probes import ABOUT, PROBES, MachineFact
from rpcinspect.cli.torch_probes import TORCH_PROBES, TorchSearch
from rpcinspect.fields.phrases import printable
from rpcinspect.views.text.columns import Line, show_lines

EVERYWHERE = "captures as pcap, pcapng and rpclog, also compressed, need nothing else"
PROBE_S = 10
"""What no probe needs: a folder on a server that is gone keeps who looks into it for ever."""
STYLES = {"ok": "green", "missing": "yellow", "none": "dim", "unknown": "yellow"}

WORDS = {True: ("works", "bold green"), False: ("no", "yellow"), None: ("unknown", "yellow")}


class CommandState(Struct, frozen=True, kw_only=True):
    """Whether a command works here."""

    command: str
    works: bool | None
    """None: nobody answered."""
    how: str
    """By what, or why not."""


class MachineReport(Struct, frozen=True, kw_only=True):
    """All that was found."""

    checks: Sequence[MachineFact]
    commands: Sequence[CommandState]


class TooLong(Exception):
    """A probe does not end."""


def examined(command: DoctorCommand) -> int:
    """Looks and writes; returns the exit code."""
    imports_are_over()
    facts = found(command.interpreter)
    report = MachineReport(checks=facts, commands=tuple(states({fact.name: fact for fact in facts})))
    if command.format == "json":
        text = msgspec.json.format(msgspec.json.encode(report), indent=2)
        write_json([text, b"\n"], command.output)
    else:
        with open_console(command.output) as console:
            show_lines(report_lines(report), console)
    return exit_codes.OK


def found(interpreter: str | None) -> tuple[MachineFact, ...]:
    """Runs every probe; one that fails or does not end is a fact, too. torch is looked at meanwhile."""
    searches: list[TorchSearch] = []

    def begin() -> Iterator[MachineFact]:
        searches.append(TorchSearch(interpreter))
        yield from ()

    late = run_probe("torch", begin)
    about, others = ([f for p in probes for f in run_probe(p.__name__, p)] for probes in (ABOUT, PROBES))
    for search in searches:
        search.wait()
        for probe in TORCH_PROBES:
            late += run_probe(probe.__name__, partial(probe, search))
    return (*about, *late, *others)


def run_probe(
    name: str, probe: Callable[[], Iterable[MachineFact]], seconds: float = PROBE_S
) -> list[MachineFact]:
    """Returns what a probe has found, or that it came to no end."""
    facts: list[MachineFact] = []
    try:
        with bounded(seconds):
            facts.extend(probe())
    except TooLong:
        told = f"no answer within {seconds:g} s"
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    else:
        return facts
    return [*facts, MachineFact(name=name, state="unknown", found=told, needed_for="")]


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raises `TooLong` in what takes longer."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def states(facts: Mapping[str, MachineFact]) -> Iterator[CommandState]:
    """Yields for each kind of command whether it works, and by what."""

    def of(command: str, *needed: str, how: str = "{}") -> CommandState:
        """All of these must be there; the first that is not is the reason. `{}`: what was found last."""
        for name in needed:
            fact = facts.get(name)
            if fact is None or fact.state != "ok":
                known = fact is not None and fact.state != "unknown"
                why = "not looked at" if fact is None else fact.found
                return CommandState(command=command, works=False if known else None, how=f"{name}: {why}")
        return CommandState(command=command, works=True, how=how.format(facts[needed[-1]].found))

    yield CommandState(command="decode, findings, diff, export", works=True, how=EVERYWHERE)
    yield of("decode of other formats", "tshark")
    live = of("decode --live", "packet capture", how="by a packet socket")
    by_dumpcap = of("decode --live", "dumpcap", how="by dumpcap")
    yield by_dumpcap if by_dumpcap.works and not live.works else live
    yield of("browse", "textual", "terminal")
    yield of("export parquet", "pyarrow", how="pyarrow {}")
    yield of("record --via agent", "system", "torch's RPC", "agent", how="on any transport: {}")
    wire = of("record --via wire", "system", "packet capture", how="on any interface")
    alone = of("record --private-net", "system", "network namespace", how="a namespace {}, on its loopback")
    yield from (wire, alone)
    yield of("replay", "torch's RPC", "torch", how="torch {}")
    yield of("replay --device cuda", "torch's RPC", "torch", "GPU")
    yield of("replay --debug-port", "torch's RPC", "torch", "debugpy", how="debugpy {}")


def report_lines(report: MachineReport) -> Iterator[Line]:
    """Yields what was found, then what works."""
    width = max(len(fact.name) for fact in report.checks)
    for fact in report.checks:
        line = f"{fact.state:<7}  {fact.name:<{width}}  {printable(fact.found)}"
        yield f"{line} (for {fact.needed_for})" if fact.needed_for else line, STYLES[fact.state]
        if fact.remedy is not None:
            yield f"{'':<7}  {'':<{width}}  → {printable(fact.remedy)}", ""
    yield "", ""
    width = max(len(state.command) for state in report.commands)
    for state in report.commands:
        word, style = WORDS[state.works]
        yield f"{word:<7}  {state.command:<{width}}  {printable(state.how)}", style
