"""One side of a diff: the calls of a run, and what the alignment wants to know of each.

In: an open session, perhaps one context of it. Out: calls by index, their causes, the message that each edge
and each RRef goes back to, and the contents of messages, made when they are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from rpcinspect.diff.content import Contents, function_label
from rpcinspect.rpc.questions import created, fork_of, rref_of
from rpcinspect.run.exchanges import Call
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
    """A message: the index of its request, and whether it is the answer."""

    request: int
    is_answer: bool


class DiffSide:
    """A run, or one context of it."""

    def __init__(self, opened: Run, context: AutogradContext | None = None) -> None:
        """`context`: only its calls, and those that follow from them."""
        self.opened = opened
        self.context = context
        self.messages = opened.messages
        exchanges = opened.exchanges
        self.parents: Mapping[int, int] = opened.causes.decided().parents
        self.orphans = exchanges.orphans if context is None else ()
        calls = exchanges.calls if context is None else _within(context, exchanges.calls, self.parents)
        self.calls: dict[int, Call] = {call.index: call for call in calls}
        """By the index of the request, in the order in which they began."""
        self.signs: dict[int, Sign] = {}
        """Of requests; of orphans too."""
        self.edges: dict[tuple[int, int, int], Place] = {}
        """(job, context, autograd message id) → the forward message."""
        self._names: Mapping[tuple[int, str], str] = {}
        self._contents: dict[int, int] = {}
        self._content_of = Contents(opened.read, self._rref_label)
        self._rrefs: dict[tuple[int, int], Hashable] = {}
        self._forks: dict[tuple[int, int], tuple[int, int]] = {}

    def name(self, job: int, label: str) -> str:
        """What a worker is called in both runs."""
        return self._names.get((job, label), label)

    def recognise(
        self, names: Mapping[tuple[int, str], str], translate: Callable[[str], str] | None = None
    ) -> None:
        """Takes the names of workers that hold in both runs; everything below needs them."""
        self._names = names
        self._content_of = Contents(self.opened.read, self._rref_label, translate)
        for call in self.calls.values():
            ends = self.name(call.job, call.caller), self.name(call.job, call.callee)
            self.signs[call.index] = Sign(call.job, *ends, call.kind, function_label(call.function))
        for orphan in self.orphans:
            ends = self.name(orphan.job, orphan.source), self.name(orphan.job, orphan.destination)
            self.signs[orphan.index] = Sign(orphan.job, *ends, orphan.record.rpc.message.type, None)
        self._label_rrefs()
        self._find_edges()

    def content(self, index: int) -> int:
        """What a message says, without its envelopes and up to ids."""
        known = self._contents.get(index)
        if known is None:
            known = self._contents[index] = self._content_of.of(self.messages[index])
        return known

    def said(self, index: int) -> tuple[int, str, bytes, tuple[bytes, ...]]:
        """A request as it travelled, to put requests into an order that is the same in every process, and
        whatever workers are renamed to. What was not captured is empty."""
        record = self.messages[index]
        extents = [tensor.extent for tensor in record.tp.tensors]
        tensors = [
            b"" if extent is None or extent.missing else self.opened.read(extent) for extent in extents
        ]
        return (
            self.signs[index].kind,
            self.signs[index].function or "",
            record.rpc.message.payload,
            tuple(tensors),
        )

    def rref(self, index: int) -> Hashable:
        """What the RRef is, in any run, that a request of housekeeping is about."""
        call = self.calls[index]
        rref, fork = rref_of(call.request), fork_of(call.request)
        if rref is None and fork is not None:
            rref = self._forks.get(fork)
        return None if rref is None else self._rref_label(rref)

    def forward(self, call: Call) -> Place | None:
        """The forward message whose edge a gradient request goes back along."""
        metadata = getattr(call.request.rpc.command, "autograd_metadata", None)
        if metadata is None:
            return None
        return self.edges.get((call.job, metadata.autograd_context_id, metadata.autograd_message_id))

    def _rref_label(self, rref: tuple[int, int]) -> Hashable:
        return self._rrefs.get(rref)

    def _label_rrefs(self) -> None:
        """An RRef is called after the call that made it: what that says, and the how-manieth it is."""
        made: Counter[Hashable] = Counter()
        for call in self.calls.values():
            for record in (call.request, call.response):
                for fork in record.facts.forks if record is not None else ():
                    self._forks.setdefault(fork.fork_id, fork.rref_id)
            ids = created(call.request)
            if ids is None:
                continue
            label = (self.signs[call.index], self.content(call.index))
            made[label] += 1
            self._rrefs.setdefault(ids[0], hash((label, made[label])))
            self._forks.setdefault(ids[1], ids[0])

    def _find_edges(self) -> None:
        wanted = {call.job for call in self.calls.values()}
        requests = {call.answer: call.index for call in self.calls.values() if call.answer is not None}
        for context in self.opened.session.contexts:
            if context.job not in wanted:
                continue
            for edge in context.edges:
                is_answer = edge.forward in requests
                place = Place(requests.get(edge.forward, edge.forward), is_answer)
                self.edges[context.job, context.context_id, edge.autograd_message_id] = place


def _within(
    context: AutogradContext, calls: tuple[Call, ...], parents: Mapping[int, int]
) -> tuple[Call, ...]:
    """The calls of one context, and those that were sent while serving one of them."""
    kept: set[int] = set()
    for call in calls:
        if call.control or call.job != context.job:
            continue
        if call.context == context.context_id or parents.get(call.index) in kept:
            kept.add(call.index)
    return tuple(call for call in calls if call.index in kept)
