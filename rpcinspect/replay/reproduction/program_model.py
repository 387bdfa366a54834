"""What a worker does in a reproducer, as plain records: calls, answers, passes, and blocks of them.

A worker's program is a list of parts, one after the other: blocks in an autograd context or in none, and
lanes of blocks that run at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.replay.reproduction.reproduced import Gradient
from rpcinspect.run.exchanges import Exchange


class Send(Struct, frozen=True):
    """A call begins."""

    call: Exchange
    waits: bool
    """Its answer is the next thing."""
    after: tuple[int, ...] = ()
    """Requests of other workers, of which the answers come first."""
    behind: tuple[int, ...] = ()
    """Requests of other workers to the same one that are sent first: they overlapped, and were answered
    earlier."""
    told: bool = False
    """Others go behind it."""


class Await(Struct, frozen=True):
    """The answer to a call is there."""

    call: Exchange


class Pass(Struct, eq=False):
    """A backward pass."""

    trigger: Exchange | None
    """RRef.backward(); None: the worker begins with outputs of its own calls."""
    number: int
    """In its context, from 0."""
    roots: list[Gradient] = field(default_factory=list)
    linked: list[Gradient] = field(default_factory=list)
    """Sent by the graph itself, see `Link`."""
    back: list[Gradient] = field(default_factory=list)
    """What comes back."""
    lost: list[Gradient] = field(default_factory=list)
    """Sent in a pass that an owner began, but not known after what."""
    after: tuple[int, ...] = ()

    @property
    def first(self) -> Exchange:
        """What it began with."""
        if self.trigger is not None:
            return self.trigger
        return min((g.call for g in (*self.roots, *self.linked)), key=lambda c: (c.begin_ns, c.index))

    @property
    def sent(self) -> list[Gradient]:
        """All gradients that the script gives, in the order in which they were sent."""
        return sorted((*self.roots, *self.linked), key=lambda g: (g.call.begin_ns, g.call.index))


class Link(Struct, eq=False):
    """The arguments of a call depend on the answers to earlier ones; gradients through it are recorded."""

    call: Exchange
    outputs: dict[int, dict[int, Gradient]] = field(default_factory=dict)
    """Earlier request → pass → the gradient that is given for its answer."""


Event: TypeAlias = Send | Await | Pass


class Block(Struct, eq=False):
    """Events in order, in one autograd context or in none."""

    context: int | None
    events: list[Event] = field(default_factory=list)
    skips: int | None = None
    """The context's own number, where it matters and is not the next one."""


class Together(Struct, eq=False):
    """Blocks of contexts that overlapped: the lanes run at once, contexts are made in order."""

    lanes: list[Block]


class Program(Struct, eq=False):
    """What one worker does of its own."""

    job: int
    worker: str
    parts: list[Block | Together] = field(default_factory=list)
    links: dict[int, Link] = field(default_factory=dict)
    """By the request whose arguments depend on others."""


class Timed(Struct, eq=False):
    """An event and when it was."""

    time_ns: int
    index: int
    event: Event
    context: int | None


def after_of(item: Timed) -> tuple[int, ...]:
    """What an event comes after."""
    return () if isinstance(item.event, Await) else item.event.after


def set_after(item: Timed, after: tuple[int, ...]) -> None:
    """Answers come when they come."""
    if isinstance(item.event, Pass):
        item.event.after = after
    elif isinstance(item.event, Send):
        item.event = replace(item.event, after=after)


def awaited(found: Sequence[Program]) -> frozenset[tuple[int, int]]:
    """(job, request) that some step of another worker comes after."""
    return frozenset(
        (program.job, index)
        for program in found
        for block in blocks_of(program)
        for event in block.events
        if not isinstance(event, Await)
        for index in event.after
    )


def blocks_of(program: Program) -> list[Block]:
    """All blocks, those of lanes included."""
    out: list[Block] = []
    for part in program.parts:
        out += [part] if isinstance(part, Block) else part.lanes
    return out
