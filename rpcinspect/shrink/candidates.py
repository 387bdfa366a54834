"""Where two runs part → sets of calls of one of them that may show it, the smallest first.

In: a comparison and the sessions of its two sides. Out: which side is to be written and which of its
messages. The first set is the least that is causally closed: with each call the one that it was sent for, the
calls that were sent while serving it, who made its RRefs, the earlier calls that changed its callee's state,
and for gradients and steps of optimizers all of their context (`replay.selection.needed`). Some calls can be
told from others only beside them: those are in the sets that follow, of which the last is the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from rpcinspect.diff.model import Comparison
from rpcinspect.replay.planning.facts import read_facts
from rpcinspect.replay.planning.selection import needed
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange, Exchanges
from rpcinspect.run.run import Run


class Target(Struct, frozen=True):
    """What has to be shown."""

    side: Literal["a", "b"]
    """The run whose messages are written: b, or a for a call that b lacks."""
    indexes: tuple[int, ...]
    """Of requests of that run; of an answer without one its own."""


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


def candidates(run: Run, target: Target) -> Iterator[frozenset[int]]:
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
