"""Where one can go from a message: to its answer, its cause, its gradients, whatever its RRefs went through.

In: a run and the index of a message. Out: messages, with what they are to that one; several where several
are possible, and those that are not certain say so. Everything is the run's: nothing is concluded here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from rpcinspect.browse.parts import MAX_TARGETS, Destination
from rpcinspect.fields.phrases import end_label
from rpcinspect.rpc.questions import context_of

if TYPE_CHECKING:
    from rpcinspect.run.run import RunModel
    from rpcinspect.session.model import RRef


class MessageMove(Struct, frozen=True):
    """A way from one message to others."""

    name: str
    key: str
    about: str
    targets: Callable[[RunModel, int], Iterator[Destination]]
    none: Callable[[RunModel, int], str]
    """Says why there is nowhere to go."""


def _partner(run: RunModel, index: int) -> Iterator[Destination]:
    message = run.message(index)
    if message.partner is not None:
        yield Destination(message.partner.index, "its answer" if message.is_request else "its request")


def _request(run: RunModel, index: int) -> int | None:
    """Returns the request of an answer, and a request itself."""
    message = run.message(index)
    if message.is_request:
        return index
    return None if message.partner is None else message.partner.index


def _parents(run: RunModel, index: int) -> Iterator[Destination]:
    request = _request(run, index)
    if request is None:
        return
    parents, certain = run.causes.of(request)
    for parent in parents:
        yield Destination(
            parent, "it was sent for this" if certain else "it may have been sent for this (ambiguous)"
        )


def _children(run: RunModel, index: int) -> Iterator[Destination]:
    request = _request(run, index)
    if request is None:
        return
    for child in run.causes.children.get(request, ()):
        yield Destination(child, "it was sent for this")


def _gradients(run: RunModel, index: int) -> Iterator[Destination]:
    """From a forward message to its gradients, from a gradient to its forward message."""
    job = run.session.job(int(run.session.order[index]))
    asked = _request(run, index)
    context = context_of(run.message(index if asked is None else asked).record)
    its = (edge for one in run.contexts if one.key == (job, context) for edge in one.edges)
    for edge in its:
        if edge.forward == index:
            yield from (Destination(one, "its gradients") for one in edge.backward)
        elif asked in edge.backward:
            yield Destination(edge.forward, "its forward message")


def _rrefs(run: RunModel, index: int) -> Iterator[Destination]:
    row = int(run.session.order[index])
    job = run.session.job(row)
    for rref in run.session.rrefs:
        if rref.job != job:
            continue
        its = [*_life(rref)]
        if any(target.message == index for target in its):
            yield from (target for target in its if target.message != index)


def _life(rref: RRef) -> Iterator[Destination]:
    """Everything that was captured of a reference, in the order of time."""
    found = [(rref.created, "created"), (rref.confirmed, "creation answered")]
    for fork in rref.forks:
        holder = fork.holder or "?"
        found += [
            (fork.begin, f"brought to {holder}"),
            (fork.requested, f"registered by {holder}"),
            (fork.accepted, f"accepted by {holder}"),
            (fork.deleted, f"deleted by {holder}"),
            (fork.acknowledged, "delete answered"),
        ]
    found += [(fetch, "value fetched") for fetch in rref.fetches]
    found += [(backward, "backward called") for backward in rref.backwards]
    told = {message: text for message, text in reversed(found) if message is not None}
    for message, text in sorted(told.items()):
        yield Destination(message, f"rref {rref.rref_id[0]}:{rref.rref_id[1]}: {text}")


def _no_parent(run: RunModel, index: int) -> str:
    request = _request(run, index)
    if request is None:
        return f"the request that #{index} answers was not captured"
    doubt = run.causes.doubts.get(request)
    if doubt is None:
        return f"#{request} was sent by the program of {end_label(run.message(request).sender)} itself"
    return f"#{request} may have been sent for a request that was not captured (ambiguous)"


def _nothing(text: str) -> Callable[[RunModel, int], str]:
    return lambda run, index: text.format(index)


MOVES: tuple[MessageMove, ...] = (
    MessageMove("partner", "p", "request ⇄ answer", _partner, _nothing("no partner of #{} was captured")),
    MessageMove("parent", "u", "the call that it was sent for", _parents, _no_parent),
    MessageMove(
        "children", "d", "calls that it caused", _children, _nothing("#{} caused no call for certain")
    ),
    MessageMove("gradient", "b", "forward ⇄ gradient", _gradients, _nothing("no gradient belongs to #{}")),
    MessageMove("rref", "r", "the life of its RRefs", _rrefs, _nothing("no RRef takes part in #{}")),
)
"""To add one: a function and its line here; the app makes a key and a command of it."""


def targets(move: MessageMove, run: RunModel, index: int) -> list[Destination]:
    """Returns where a move leads from a message."""
    return list(islice(move.targets(run, index), MAX_TARGETS))
