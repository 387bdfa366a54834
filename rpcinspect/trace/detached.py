"""`lost-edge` and `detached-parameter`: tensors that require grad at one end, and can't get a gradient there.

A tensor that requires grad in a message without an autograd envelope arrives as a leaf. One in an envelope
has an edge, but if the callee returns nothing that requires grad and sends nothing else in the context,
that edge leads nowhere. An nn.Parameter is pickled by value in either case: its data travels detached.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rpcinspect.rpc.command_codec import parameter_indexes
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import CALLS, FETCHES
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, MessageColumns
from rpcinspect.trace.evidence import CaptureEvidence
from rpcinspect.trace.groups import Crowd, Group, Groups
from rpcinspect.trace.notes import Note
from rpcinspect.trace.stage import MAX_INDEXES, Stage
from rpcinspect.trace.words import counted, numbers, packed, several, unique

ANSWERED_AT_ONCE = frozenset({MessageType.PYTHON_CALL, MessageType.SCRIPT_CALL})
"""Calls whose result comes back with the answer; that of a remote call stays with the callee."""
REQUESTS = CALLS | FETCHES
"""Requests with tensors of the user's program, in them or in their answers."""


class DetachedTensors(Stage):
    """See the module's text."""

    KINDS = REQUESTS

    def __init__(self, columns: MessageColumns) -> None:
        self._bare = Groups(columns)
        """Messages with grads and without an autograd envelope."""
        self._parameters = {inside: Groups(columns) for inside in (True, False)}
        """Requests with a trainable nn.Parameter, by whether they are in a context."""
        self._one_way = Groups(columns)
        """Requests with an edge whose answer has none."""

    def feed(self, record: RpcRecord, note: Note) -> None:
        if _bare(note):
            self._bare.add(record.row, note.what)
        facts = record.facts
        if (
            facts.parameters
            and note.kind in CALLS
            and facts.pickle is not None
            and parameter_indexes(facts.pickle, trainable=True)
        ):
            self._parameters[note.wrapped].add(record.row, note.what)

    def pair(self, row: int, request: Note, answer_row: int, answer: Note) -> None:
        if request.kind in REQUESTS and _bare(answer):
            self._bare.add(answer_row, f"answer of {request.what}")
        if _one_way(request, answer):
            self._one_way.add(row, request.what)

    def indifferent(self, record: RpcRecord, note: Note) -> bool:
        return not _bare(note) and not record.facts.parameters

    def indifferent_pair(self, request: Note, answer: Note) -> bool:
        return not (request.kind in REQUESTS and _bare(answer)) and not _one_way(request, answer)

    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        for group in self._bare.gathered(run):
            yield _warning(
                "lost-edge",
                group,
                f"{counted(len(group.indexes), 'message')} {group.way} "
                f"({group.what} {numbers(group.indexes)}) had tensors that require grad, but no autograd "
                f"envelope: "
                "they arrive as leaves, and no gradient comes back.",
                "Make the call inside dist_autograd.context(), or detach the tensors before they are sent.",
            )
        yield from self._dead_ends(run)
        for inside, groups in self._parameters.items():
            where = "" if inside else ", outside of any autograd context"
            for group in groups.gathered(run):
                yield _warning(
                    "detached-parameter",
                    group,
                    f"{counted(len(group.indexes), 'request')} {group.way} "
                    f"({group.what} {numbers(group.indexes)}) carried an nn.Parameter{where}: it is "
                    f"pickled as a "
                    "leaf of its own, so that no gradient returns.",
                    "Send a plain tensor that depends on it (parameter * 1), or an RRef to it.",
                )

    def _dead_ends(self, run: CaptureEvidence) -> Iterable[Finding]:
        """Edges whose receiver sends nothing on in a context in which no pass ran: with one, the lack of a
        gradient is an error of its own."""
        contexts: dict[int, int] = {}
        onward: dict[tuple[int, int], set[str]] = defaultdict(set)
        for context in run.session.contexts:
            if any(edge.backward for edge in context.edges):
                continue
            for edge in context.edges:
                contexts[edge.forward] = context.context_id
                onward[context.job, context.context_id].add(edge.sender)
        for group in self._one_way.finish(run):
            dead = [
                index
                for index in group.indexes
                if index in contexts and group.receiver not in onward[group.job, contexts[index]]
            ]
            if dead:
                names = several(unique(packed(contexts[index]) for index in dead))
                yield _warning(
                    "lost-edge",
                    Group(group.job, group.sender, group.receiver, group.what, tuple(dead)),
                    f"{group.receiver} got tensors that require grad from {group.sender} ({group.what} "
                    f"{numbers(dead)}) and sends none in context {names}: no backward pass can bring their "
                    "gradient.",
                    "Return what depends on the tensors, or detach them before they are sent: a backward "
                    "pass in "
                    "this context would wait forever.",
                )


def _bare(note: Note) -> bool:
    """Whether tensors that require grad travel outside of an autograd envelope."""
    return note.grads and not note.wrapped and note.whole


def _one_way(request: Note, answer: Note) -> bool:
    """Whether a request has an edge and its answer has none."""
    return (
        request.wrapped
        and request.grads
        and request.kind in ANSWERED_AT_ONCE
        and not answer.grads
        and not answer.failed
        and answer.whole
    )


def _warning(code: str, group: Group | Crowd, text: str, remedy: str) -> Finding:
    return Finding(
        code=code,
        severity="warning",
        text=text,
        remedy=remedy,
        messages=group.indexes[:MAX_INDEXES],
        workers=group.workers,
    )
