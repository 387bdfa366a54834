"""The smallest part of a run that shows where it parts from another one, as a capture.

In: a comparison and its two runs. Out: a capture in a file that is given, and what is in it.

Candidates are sets of calls, the smallest first. That is the least that is causally closed: with each call
the one that it was sent for, the calls that were sent while serving it, who made its RRefs, the earlier calls
that changed its callee's state, and for gradients and steps of optimizers all of their context
(`replay.selection.needed`). Some calls can be told from others only beside them: those are in the sets that
follow, of which the last is the whole run. Each candidate is written, decoded again and compared, until the
same difference is the first: of the same code, at the same message of both runs. Calls that the part lacks
are no difference then (`--ignore missing`, or `extra` where the part is a's).
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from typing import IO, Literal

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.diff.compare import compare_runs
from rpcinspect.diff.model import Comparison
from rpcinspect.export.pcap.writer import write_session
from rpcinspect.files.temporary import Temporary
from rpcinspect.replayer.planning.facts import read_facts
from rpcinspect.replayer.planning.selection import needed
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange, Exchanges
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import AutogradContext

Contexts = tuple[AutogradContext | None, AutogradContext | None]


class Target(Struct, frozen=True):
    """What has to be shown."""

    side: Literal["a", "b"]
    """The run whose messages are written: b, or a for a call that b lacks."""
    indexes: tuple[int, ...]
    """Of requests of that run; of an answer without one its own."""


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
    a: RunModel,
    b: RunModel,
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
    runs: tuple[RunModel, RunModel],
    contexts: Contexts,
) -> bool:
    """Returns whether the comparison of the part gives the same as that of the whole."""
    # latencies say nothing of where runs part, and cost time
    rules = replace(comparison.rules, ignore=comparison.rules.ignore | {shrunk.ignore, "latency"})
    with RunModel.open([path]) as part:
        side = 0 if shrunk.side == "a" else 1
        found = _same_context(part, contexts[side])
        if contexts[side] is not None and found is None:
            return False
        sides = (part, runs[1]) if side == 0 else (runs[0], part)
        within = (found, contexts[1]) if side == 0 else (contexts[0], found)
        again = compare_runs(*sides, rules, contexts=within)
    return _first(again, shrunk.messages, side) == _first(comparison, None, side)


def _same_context(part: RunModel, context: AutogradContext | None) -> AutogradContext | None:
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


def target_of(comparison: Comparison) -> Target | None:
    """The exchange at which the runs part first; None where they are the same."""
    if comparison.first is None:
        return None
    found = comparison.found[comparison.first.found]
    message = comparison.messages[found.message]
    request = message if message.answers is None else comparison.messages[message.answers]
    if request.b is None:
        assert request.a is not None
        return Target("a", (request.a,))
    moved = found.difference.b_value if found.difference.code == "reordered" else None
    if isinstance(moved, list):
        return Target("b", tuple(dict.fromkeys([request.b, *(i for i in moved if type(i) is int)])))
    return Target("b", (request.b,))


def candidates(run: RunModel, target: Target) -> Iterator[frozenset[int]]:
    """Indexes of messages, each set once."""
    messages = run.messages
    exchanges = run.exchanges
    calls = exchanges.by_index()
    chosen = [calls[index] for index in target.indexes if index in calls]
    if not chosen:  # an answer without a request depends on nothing that is known
        yield frozenset(target.indexes)
        yield frozenset(range(len(messages)))
        return
    causes, facts = run.causes.decided(), read_facts(run)
    known: frozenset[int] | None = None
    for roots in _roots(exchanges, causes, chosen):
        requests = needed(roots, exchanges.calls, causes, facts)
        if requests != known:
            known = requests
            yield _with_answers(requests, calls)
    yield frozenset(range(len(messages)))


def _roots(exchanges: Exchanges, causes: Causes, chosen: list[Exchange]) -> Iterator[list[int]]:
    """The target; with like calls before it, since it may be one too many; with its unit; with all like
    calls, since the other run's later ones would be taken for it; with all that began before it was over."""
    end_ns = max(call.arrived_ns if call.end_ns is None else call.end_ns for call in chosen)
    calls = [call for call in exchanges.calls if not call.control]
    before = {call.index for call in calls if call.begin_ns <= end_ns}
    signs = {_sign(call) for call in chosen}
    like = [call.index for call in calls if _sign(call) in signs]
    ends = {sign[:4] for sign in signs}
    replacing = [call.index for call in calls if _sign(call)[:4] in ends]
    contexts = {(call.job, call.context) for call in chosen if call.context is not None}
    parents = {causes.parents.get(call.index) for call in chosen} - {None}
    beside = [
        c.index for c in calls if (c.job, c.context) in contexts or causes.parents.get(c.index) in parents
    ]
    roots = [call.index for call in chosen]
    yield roots
    roots = [*roots, *before.intersection(like)]
    yield roots
    roots = [*roots, *before.intersection(beside)]
    yield roots
    yield [*roots, *like]
    yield [*roots, *replacing]
    yield [*roots, *before]
    yield [*roots, *before, *like]


def _sign(call: Exchange) -> tuple[int, str, str, int, str | None]:
    """What a call is, whatever it says."""
    return call.job, call.caller, call.callee, call.kind, call.function


def _with_answers(requests: frozenset[int], calls: dict[int, Exchange]) -> frozenset[int]:
    answers = [calls[index].answer for index in requests]
    return requests | {answer for answer in answers if answer is not None}
