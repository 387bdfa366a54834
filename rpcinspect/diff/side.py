"""One side of a diff: the calls of a run, and what the alignment wants to know of each.

In: an open session, perhaps one context of it. Out: calls by index, their causes, the message that each edge
and each RRef goes back to, and the contents of messages, made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from rpcinspect.diff.content import Content, Contents, function_label
from rpcinspect.rpc.questions import created, fork_of
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import Run
from rpcinspect.session.model import AutogradContext


class Sign(NamedTuple):
    """What a call is, whatever it says; workers are called as in the second run."""

    job: int
    caller: str
    callee: str
    kind: int
    function: str | None


class Place(NamedTuple):
    """A message: the index of its request, whether it is the answer, and a position in it."""

    request: int
    is_answer: bool
    position: int = 0


JobId = tuple[int, tuple[int, int]]
"""(job, id of an RRef or a fork)."""


class DiffSide:
    """A run, or one context of it."""

    def __init__(self, opened: Run, context: AutogradContext | None = None) -> None:
        """`context`: only its calls, and those that follow from them."""
        self.opened = opened
        self.context = context
        self.messages = opened.messages
        self.causes = opened.causes
        exchanges = opened.exchanges
        self.orphans = exchanges.orphans if context is None else ()
        calls = exchanges.calls
        if context is not None:
            calls = _within(context, calls, opened.causes.decided().parents)
        self.calls: dict[int, Exchange] = {call.index: call for call in calls}
        """By the index of the request, in the order in which they began."""
        self.signs: dict[int, Sign] = {}
        """Of requests; of orphans too."""
        self._requests = {call.answer: call.index for call in calls if call.answer is not None}
        """Index of an answer → that of its request."""
        self.origins: dict[JobId, Place] = {}
        """RRef → the call that made it, else the first message that brought it."""
        self.carriers: dict[JobId, Place] = {}
        """Fork → the message that brought or made it."""
        self._names: Mapping[tuple[int, str], str] = {}
        self._contents: dict[int, Content] = {}
        self._values: dict[int, frozenset[int]] = {}
        self._content_of = Contents(opened.read)
        self._find_origins()

    def name(self, job: int, label: str) -> str:
        """What a worker is called in both runs."""
        return self._names.get((job, label), label)

    def recognise(
        self, names: Mapping[tuple[int, str], str], translate: Callable[[str], str] | None = None
    ) -> None:
        """Takes the names of workers that hold in both runs; everything below needs them."""
        self._names = names
        self._content_of = Contents(self.opened.read, translate)
        for call in self.calls.values():
            ends = self.name(call.job, call.caller), self.name(call.job, call.callee)
            self.signs[call.index] = Sign(call.job, *ends, call.kind, function_label(call.function))
        for orphan in self.orphans:
            ends = self.name(orphan.job, orphan.source), self.name(orphan.job, orphan.destination)
            self.signs[orphan.index] = Sign(orphan.job, *ends, orphan.record.rpc.message.type, None)

    def called(self, request: int) -> str | None:
        """Who a request calls, as a person says it."""
        call = self.calls.get(request)
        if call is None:
            return None
        return function_label(call.function if call.name is None else call.name.short)

    def content(self, index: int) -> Content:
        """What a message says."""
        known = self._contents.get(index)
        if known is None:
            known = self._contents[index] = self._content_of.of(self.messages[index])
        return known

    def says(self, index: int) -> Hashable:
        """What a message says, whatever RRefs it uses."""
        return self.content(index)[:2]

    def arguments(self, index: int) -> int:
        """The arguments of a call, whatever its function."""
        return self._content_of.arguments(self.messages[index])

    def values(self, index: int) -> frozenset[int]:
        """Marks of the values in the arguments of a call. Those of all calls are made at once, since finding
        those of one means to pass all by."""
        if not self._values:
            session = self.opened.session
            rows = {one: int(session.order[one]) for one in self.calls}
            found = session.provenance.values(set(rows.values()))
            self._values = {one: found[row] for one, row in rows.items()}
        return self._values[index]

    def travelled(self, index: int) -> tuple[int, str, bytes, tuple[bytes, ...]]:
        """A request as it travelled, to put requests into an order that is the same in every process, and
        whatever workers are renamed to. What was not captured is empty."""
        record = self.messages[index]
        extents = [tensor.extent for tensor in record.tp.tensors]
        tensors = [
            b"" if extent is None or extent.missing else self.opened.read(extent) for extent in extents
        ]
        sign = self.signs[index]
        return sign.kind, sign.function or "", record.rpc.message.payload, tuple(tensors)

    def thread(self, index: int) -> Hashable:
        """What calls have in common that were sent for the same; one of which that is in doubt is alone."""
        return (index,) if index in self.causes.doubts else self.causes.parents.get(index)

    def carrier(self, call: Exchange) -> Place | None:
        """The message that brought the fork which a request of housekeeping is about."""
        fork = fork_of(call.request)
        return None if fork is None else self.carriers.get((call.job, fork))

    def forward(self, call: Exchange) -> Place | None:
        """The forward message whose edge a gradient request goes back along."""
        metadata = getattr(call.request.rpc.command, "autograd_metadata", None)
        if metadata is None:
            return None
        edge = (call.job, metadata.autograd_context_id, metadata.autograd_message_id)
        forward = self.opened.edges.get(edge)
        if forward is None:
            return None
        return Place(self._requests.get(forward, forward), forward in self._requests)

    def _find_origins(self) -> None:
        brought: list[tuple[int, Exchange, bool]] = []
        for call in self.calls.values():
            ids = created(call.request)
            if ids is not None:
                self.origins.setdefault((call.job, ids[0]), Place(call.index, False, -1))
                self.carriers.setdefault((call.job, ids[1]), Place(call.index, False, -1))
            brought.append((call.begin_ns, call, False))
            if call.response is not None and call.answered_ns is not None:
                brought.append((call.answered_ns, call, True))
        for _, call, is_answer in sorted(brought, key=lambda item: item[0]):
            record = call.response if is_answer else call.request
            for position, fork in enumerate(record.facts.forks if record is not None else ()):
                place = Place(call.index, is_answer, position)
                self.origins.setdefault((call.job, fork.rref_id), place)
                self.carriers.setdefault((call.job, fork.fork_id), place)


def _within(
    context: AutogradContext, calls: tuple[Exchange, ...], parents: Mapping[int, int]
) -> tuple[Exchange, ...]:
    """The calls of one context, and those that were sent while serving one of them."""
    kept: set[int] = set()
    for call in calls:
        if call.control or call.job != context.job:
            continue
        if call.context == context.context_id or parents.get(call.index) in kept:
            kept.add(call.index)
    return tuple(call for call in calls if call.index in kept)
