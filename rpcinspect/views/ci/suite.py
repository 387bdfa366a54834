"""What a command found out as a suite of tests, and what of it is worth a mark on a change of the code.

Servers compare a suite with the one of the run before: so a case is something that each run has, such as a
code of findings or a kind of call, never a single message. Their names hold no number of a message.

In: names, outcomes and lines. Out: records that `junit` and `github` write down. Text is made harmless there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.fields.phrases import counted, path_label, printable, shorten
from rpcinspect.session.words import shorten_middle

CaseOutcome: TypeAlias = Literal["passed", "failure", "error", "skipped"]
"""`failure`: it was looked at and does not hold; `error`: it could not be looked at."""

MAX_CASES = 2000
MAX_NAME = 200
MAX_TITLE = 80
MAX_LISTED = 20
"""Messages of a case that are told one by one."""
VERDICT = "verdict"
"""The case that holds what the exit code says."""
ENDING = re.compile(r"(\.(pcapng|pcap|cap|rpclog|gz|zst))+$")


class CaseResult(Struct, frozen=True, kw_only=True):
    """The result of one test."""

    name: str
    outcome: CaseOutcome = "passed"
    message: str = ""
    """Why it did not pass, in a line."""
    lines: tuple[str, ...] = ()
    """All that there is to say; also of a test that passed."""
    seconds: float | None = None

    @property
    def bad(self) -> bool:
        """Returns whether it makes a run fail."""
        return self.outcome in ("failure", "error")


class Annotation(Struct, frozen=True, kw_only=True):
    """A mark on a change of the code: what reviewers see without opening a log."""

    level: Literal["error", "warning"]
    title: str
    lines: tuple[str, ...]


class SuiteResult(Struct, frozen=True, kw_only=True):
    """The results of a command."""

    command: str
    about: str
    """What was looked at, such as the name of a capture."""
    cases: tuple[CaseResult, ...]
    annotations: tuple[Annotation, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None

    @property
    def group(self) -> str:
        """Returns the name that stands before those of the cases, as of a class in its package."""
        return f"rpcinspect.{self.command}.{self.about}"


def about(paths: Sequence[str]) -> str:
    """Returns what captures are called in the names of tests: without an ending, and without the dots at
    which servers divide such a name."""
    if not paths:
        return "nothing"
    first = ENDING.sub("", path_label(paths[0])).removeprefix("./").replace(".", "_")
    more = f" and {counted(len(paths) - 1, 'more capture')}" if len(paths) > 1 else ""
    return shorten_middle(first, MAX_TITLE) + more


def failed_suite(command: str, runs: Sequence[Sequence[str]], reason: str) -> SuiteResult:
    """Returns the suite of a command that came to no result; `runs`: the captures of each that it was for."""
    lines = tuple(reason.splitlines()) or ("",)
    return SuiteResult(
        command=command,
        about=" and ".join(map(about, runs)),
        cases=(CaseResult(name=VERDICT, outcome="error", message=lines[0], lines=lines),),
        annotations=(Annotation(level="error", title=f"rpcinspect {command}", lines=lines),),
    )


def some_lines(lines: Sequence[str], most: int = MAX_LISTED) -> tuple[str, ...]:
    """Returns the first lines, and how many there are beside them."""
    more = len(lines) - most
    return (*lines[:most], f"and {more:,} more") if more > 0 else tuple(lines)


def told_apart(cases: Iterable[CaseResult]) -> tuple[CaseResult, ...]:
    """Returns cases with names that are short and different: servers leave out a second one of a name. Of too
    many, those that passed or were skipped go first."""
    seen: dict[str, int] = {}
    named = []
    for case in cases:
        name = told = shorten(printable(shorten(case.name, MAX_NAME)), MAX_NAME)
        while told in seen:  # by what is shown, which others may be called by themselves
            seen[name] += 1
            told = f"{name} ({seen[name]})"
        seen[told] = 1
        named.append(replace(case, name=told))
    room = MAX_CASES - 1
    if len(named) <= MAX_CASES:
        return tuple(named)
    kept = sorted(sorted(range(len(named)), key=lambda at: not named[at].bad)[:room])
    left = [case for at, case in enumerate(named) if at not in set(kept)]
    bad = sum(case.bad for case in left)
    told = f"{counted(len(left), 'more test')}, of which {bad:,} failed"
    rest = CaseResult(name="all others", outcome="failure" if bad else "passed", message=told, lines=(told,))
    return (*(named[at] for at in kept), rest)
