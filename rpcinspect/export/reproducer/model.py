"""What a reproducer is made of: plain records of what the script sends and of what each of its workers does,
and what is read off messages for them.

In: nothing but calls. Out: a `Reproduction`: the requests that the script sends, what it expects to come
back, and what it leaves out with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct, field

from rpcinspect.pickles.places import ValuePath
from rpcinspect.replayer.planning.model import GlobalUse
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.model import Worker
from rpcinspect.session.provenance import Id


class RRefHandle(Struct, frozen=True):
    """How a worker has an RRef."""

    how: str
    """`made` by a remote call; `answer`: it came with an answer; `owned`: its value was fetched from here."""
    request: int
    place: ValuePath = ()


class Gradient(Struct, frozen=True):
    """A gradient request, and the tensors of one of our calls that it is for."""

    call: Exchange
    request: int
    """Of the call with whose request or answer the tensors came."""
    tensors: tuple[int, ...]
    """In that message; the n-th is the gradient's n-th."""


class Skipped(Struct, frozen=True):
    """A request of a worker's own that is not in the script."""

    call: Exchange
    code: str
    text: str


class Reproduction(Struct, eq=False, kw_only=True):
    """The requests that a script sends, what it expects to come back, and what it leaves out."""

    workers: dict[int, tuple[Worker, ...]] = field(default_factory=dict)
    """By job: those that take part."""
    calls: dict[int, Exchange] = field(default_factory=dict)
    """What the script sends, by index: calls, fetches and RRef.backward, in the order in which they began."""
    sent: dict[int, Gradient] = field(default_factory=dict)
    """Gradients that the script gives, by index."""
    back: dict[int, Gradient] = field(default_factory=dict)
    """Gradients that it expects for arguments of its calls, by index."""
    handles: dict[tuple[int, str, Id], RRefHandle] = field(default_factory=dict)
    """(job, worker, RRef) → how the worker has it."""
    fetched: dict[int, Exchange] = field(default_factory=dict)
    """Fetches that tell the value of an RRef of the worker's own, by index."""
    skipped: tuple[Skipped, ...] = ()
    uncompared: dict[int, str] = field(default_factory=dict)
    """Request → why its answer is not compared."""
    globals: tuple[GlobalUse, ...] = ()
    left_out: int = 0
    """Requests that `--message` or `--context` leaves out."""
    trusted: bool = False

    @property
    def refused(self) -> tuple[GlobalUse, ...]:
        """What nobody allowed."""
        return () if self.trusted else tuple(use for use in self.globals if not use.allowed)


def needing_gradient(record: RpcRecord) -> tuple[int, ...]:
    """Returns the tensors of a message that require grad, in the order of its gradients."""
    tensors = record.rpc.tensors
    return tuple(i for i, meta in enumerate(tensors) if meta.requires_grad and meta.part_of is None)


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

    @property
    def after(self) -> tuple[int, ...]:
        """Returns (): answers come when they come."""
        return ()


class ProgramPass(Struct, eq=False):
    """A backward pass."""

    trigger: Exchange | None
    """RRef.backward(); None: the worker begins with outputs of its own calls."""
    number: int
    """In its context, from 0."""
    roots: list[Gradient] = field(default_factory=list)
    linked: list[Gradient] = field(default_factory=list)
    """Sent by the graph itself, see `GradientLink`."""
    back: list[Gradient] = field(default_factory=list)
    """What comes back."""
    lost: list[Gradient] = field(default_factory=list)
    """Sent in a pass that an owner began, but not known after what."""
    after: tuple[int, ...] = ()

    @property
    def first(self) -> Exchange:
        """Returns the exchange that the pass began with."""
        if self.trigger is not None:
            return self.trigger
        return min((g.call for g in (*self.roots, *self.linked)), key=lambda c: (c.begin_ns, c.index))

    @property
    def sent(self) -> list[Gradient]:
        """Returns all gradients that the script passes, in the order in which they were sent."""
        return sorted((*self.roots, *self.linked), key=lambda g: (g.call.begin_ns, g.call.index))


class GradientLink(Struct, eq=False):
    """The arguments of a call depend on the answers to earlier ones; gradients through it are recorded."""

    call: Exchange
    outputs: dict[int, dict[int, Gradient]] = field(default_factory=dict)
    """Earlier request → pass → the gradient that is given for its answer."""


ProgramEvent: TypeAlias = Send | Await | ProgramPass


class Block(Struct, eq=False):
    """Events in order, in one autograd context or in none."""

    context: int | None
    events: list[ProgramEvent] = field(default_factory=list)
    skips: int | None = None
    """The context's own number, where it matters and is not the next one."""


class Together(Struct, eq=False):
    """Blocks of contexts that overlapped: the lanes run at once, contexts are made in order."""

    lanes: list[Block]


class WorkerProgram(Struct, eq=False):
    """A worker's own actions: blocks in an autograd context or in none, and lanes of concurrent blocks."""

    job: int
    worker: str
    parts: list[Block | Together] = field(default_factory=list)
    links: dict[int, GradientLink] = field(default_factory=dict)
    """By the request whose arguments depend on others."""


class Timed(Struct, eq=False):
    """An event and its time."""

    time_ns: int
    index: int
    event: ProgramEvent
    context: int | None


def awaited(found: Sequence[WorkerProgram]) -> frozenset[int]:
    """The requests that some step of another worker comes after."""
    blocks = (block for program in found for block in blocks_of(program))
    return frozenset(index for block in blocks for event in block.events for index in event.after)


def blocks_of(program: WorkerProgram) -> list[Block]:
    """Returns all blocks, blocks of lanes included."""
    out: list[Block] = []
    for part in program.parts:
        out += [part] if isinstance(part, Block) else part.lanes
    return out
