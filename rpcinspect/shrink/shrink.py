"""The smallest part of a run that shows where it parts from another one, as a capture.

In: a comparison, its sessions and rules. Out: a capture in a file that is given, and what is in it. Each
candidate is written, decoded again and compared, until the same difference is the first: of the same code, at
the same message of both runs. Calls that the part lacks are no difference then (`--ignore missing`, or
`extra` where the part is a's).
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from typing import IO, Literal

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.diff.compare import compare_runs
from rpcinspect.diff.model import Comparison
from rpcinspect.equality.rules import Rules
from rpcinspect.files.temporary import Temporary
from rpcinspect.run.run import Run
from rpcinspect.session.model import AutogradContext
from rpcinspect.shrink.candidates import candidates, target_of
from rpcinspect.writing.file import write_session

Contexts = tuple[AutogradContext | None, AutogradContext | None]


class Shrunk(Struct, frozen=True, kw_only=True):
    """What was written."""

    side: Literal["a", "b"]
    messages: tuple[int, ...]
    """Indexes in the run that they are of, ascending: the n-th is message n of the file."""
    of: int
    """Messages of that run."""
    shows: bool
    """Comparing the file shows the same difference first."""

    @property
    def ignore(self) -> str:
        """What a comparison with the file has to ignore: calls of the other run that are not in it."""
        return "missing" if self.side == "b" else "extra"


def shrink(
    comparison: Comparison,
    a: Run,
    b: Run,
    output: IO[bytes],
    *,
    contexts: Contexts = (None, None),
) -> Shrunk | None:
    """Writes the part; None, and nothing written, where the runs are the same or unrelated."""
    target = target_of(comparison)
    if target is None:
        return None
    run = b if target.side == "b" else a
    records = run.messages
    with io.BufferedRandom(Temporary()) as file:
        shrunk = None
        for chosen in candidates(run, target):
            file.seek(0)
            file.truncate()
            write_session(file, run.session, records, run.read, chosen)
            file.flush()
            shrunk = Shrunk(side=target.side, messages=tuple(sorted(chosen)), of=len(records), shows=False)
            if _shows(comparison, shrunk, f"/dev/fd/{file.fileno()}", (a, b), contexts):
                shrunk = replace(shrunk, shows=True)
                break
        file.seek(0)
        shutil.copyfileobj(file, output)
    return shrunk


def _shows(
    comparison: Comparison,
    shrunk: Shrunk,
    path: str,
    runs: tuple[Run, Run],
    contexts: Contexts,
) -> bool:
    """Whether comparing the part says the same as comparing the whole."""
    rules = replace(comparison.rules, ignore=comparison.rules.ignore | {shrunk.ignore})
    with Run.open([path]) as part:
        side = 0 if shrunk.side == "a" else 1
        found = _same_context(part, contexts[side])
        if contexts[side] is not None and found is None:
            return False
        sides = (part, runs[1]) if side == 0 else (runs[0], part)
        within = (found, contexts[1]) if side == 0 else (contexts[0], found)
        again = compare_runs(*sides, _part_of(rules), contexts=within)
    return _first(again, shrunk.messages, side) == _first(comparison, None, side)


def _part_of(rules: Rules) -> Rules:
    """Latencies say nothing of where runs part, and cost time."""
    return replace(rules, ignore=rules.ignore | {"latency"})


def _same_context(part: Run, context: AutogradContext | None) -> AutogradContext | None:
    for its in part.session.contexts:
        if context is not None and its.context_id == context.context_id:
            return its
    return None


def _first(comparison: Comparison, messages: Sequence[int] | None, side: int) -> object:
    """Code, place and messages of the first difference; `messages`: which of the whole run those of that side
    are. Of calls that have changed places any may be told as the first."""
    if comparison.first is None:
        return None
    found = comparison.found[comparison.first.found]
    difference, message = found.difference, comparison.messages[found.message]
    groups: list[list[int]] = [[] if index is None else [index] for index in (message.a, message.b)]
    if difference.code == "reordered":
        groups = [list(difference.a_value), list(difference.b_value)]
    if messages is not None:
        groups[side] = [messages[index] for index in groups[side]]
    return difference.code, difference.path, *(sorted(group) for group in groups)
