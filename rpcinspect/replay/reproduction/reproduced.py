"""What a reproducer is made of: plain records, and what is read off messages for it.

In: nothing but calls. Out: a `Reproduction`: the requests that the script sends, what it expects to come
back, and what it leaves out with the reason.
"""

from __future__ import annotations

from msgspec import Struct, field

from rpcinspect.replay.planning.facts import Id
from rpcinspect.replay.planning.model import GlobalUse
from rpcinspect.rpc.pickles.places import Place
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.model import Worker


class Handle(Struct, frozen=True):
    """How a worker has an RRef."""

    how: str
    """`made` by a remote call; `answer`: it came with an answer; `owned`: its value was fetched from here."""
    request: int
    place: Place = ()


class Gradient(Struct, frozen=True):
    """A gradient request, and the tensors of one of our calls that it is for."""

    call: Exchange
    request: int
    """Of the call with whose request or answer the tensors came."""
    tensors: tuple[int, ...]
    """In that message; the n-th is the gradient's n-th."""


class Skipped(Struct, frozen=True):
    """A request that a worker made of its own and that is not in the script."""

    call: Exchange
    code: str
    text: str


class Reproduction(Struct, eq=False, kw_only=True):
    """See the module's text."""

    workers: dict[int, tuple[Worker, ...]] = field(default_factory=dict)
    """By job: those that take part."""
    calls: dict[int, Exchange] = field(default_factory=dict)
    """What the script sends, by index: calls, fetches and RRef.backward, in the order in which they began."""
    sent: dict[int, Gradient] = field(default_factory=dict)
    """Gradients that the script gives, by index."""
    back: dict[int, Gradient] = field(default_factory=dict)
    """Gradients that it expects for arguments of its calls, by index."""
    handles: dict[tuple[int, str, Id], Handle] = field(default_factory=dict)
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
    """The tensors of a message that require grad, in the order of its gradients."""
    tensors = record.rpc.tensors
    return tuple(i for i, meta in enumerate(tensors) if meta.requires_grad and meta.part_of is None)
