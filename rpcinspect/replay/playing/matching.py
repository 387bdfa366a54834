"""Which captured request a live worker's request repeats.

In: the captured requests that live workers are expected to send, and a live one. Out: the captured one that
it is most like, with the differences. Message numbers tell nothing, since each side counts its own; a pair
must have sender, receiver, kind and function in common, and gradients the edge. Of several, the first equal
one is taken, else the nearest: workers that run several requests at once send in another order than they did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias, cast

from msgspec import Struct

from rpcinspect.equality.difference import Difference, verdict
from rpcinspect.equality.elements import Read
from rpcinspect.equality.ids import AUTOGRAD_MESSAGE, CONTEXT, FORK, RREF, WORKER, IdMap
from rpcinspect.equality.messages import compare_messages
from rpcinspect.equality.rules import Rules
from rpcinspect.replay.playing.arrived import Arrived
from rpcinspect.replay.playing.translate import Id
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    PropagateGradientsReq,
    PythonRRefFetchCall,
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
    ScriptRRefFetchCall,
)
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.questions import context_of, function_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import pack_id, unpack_id
from rpcinspect.run.exchanges import Call

MAX_TRIALS = 256
"""Captured requests that one live request is compared with."""

Key: TypeAlias = tuple[str, str, int, str | None, int | None]


class Match(Struct, frozen=True):
    """A captured request and what a live one has in other form."""

    call: Call
    differences: tuple[Difference, ...]


class Expected:
    """The captured requests of live workers that were not repeated yet."""

    def __init__(
        self, calls: Iterable[Call], read: Read, rules: Rules, ids: IdMap, played: Collection[int] = ()
    ) -> None:
        """`read`: of captured bytes; `ids` learns from every match; `played`: captured ids of played workers,
        whose autograd contexts have the captured counters.
        """
        self._played = frozenset(played)
        self._open: dict[Key, dict[int, Call]] = defaultdict(dict)
        self._named: dict[tuple[Key, Id], dict[int, Call]] = defaultdict(dict)
        """The same by the captured id, of those that are nothing but an id or the gradient of one."""
        self._exact: dict[tuple[Key, bytes], dict[int, Call]] = defaultdict(dict)
        """The same by the payload: tried first."""
        for call in calls:
            key, own = self._key(call.caller, call.callee, call.request), own_id(call.request)
            self._open[key][call.index] = call
            self._exact[key, call.request.rpc.message.payload][call.index] = call
            if own is not None:
                self._named[key, own][call.index] = call
        self._read = read
        self._rules = rules
        self._ids = ids

    def match(self, sender: str, role: str, live: Arrived) -> Match | None:
        """The captured request that this one repeats; it won't be found again. None: there is none."""
        key = self._key(sender, role, live.record, live=True)
        best: tuple[tuple[bool, int, int], Call] | None = None
        for call in islice(self._candidates(key, live), MAX_TRIALS):
            mark = self._ids.mark()
            found = self._compare(call, live)
            contradicted = self._ids.mark()[1] > mark[1]
            if not contradicted and verdict(found, self._rules) == "identical":
                return self._take(key, call, found)
            self._ids.rollback(mark)
            rank = (contradicted, *_distance(found))
            if best is None or rank < best[0]:
                best = (rank, call)
        if best is None:
            return None
        (other_ids, *_), call = best
        if other_ids and own_id(call.request) is not None:
            return None  # the id says which one it is, and it is none of those
        return self._take(key, call, self._compare(call, live))

    def _candidates(self, key: Key, live: Arrived) -> Iterator[Call]:
        """The likeliest first; only those with the same id, where it is known which that is."""
        own = own_id(live.record)
        captured = None if own is None else self._ids.translate_back(*own)
        if own is not None and captured is not None:
            yield from self._named.get((key, (own[0], captured)), {}).values()  # type: ignore[arg-type]
            return
        exact = self._exact.get((key, live.record.rpc.message.payload), {})
        yield from exact.values()
        yield from (call for index, call in self._open.get(key, {}).items() if index not in exact)

    def _take(self, key: Key, call: Call, found: list[Difference]) -> Match:
        own = own_id(call.request)
        del self._open[key][call.index]
        del self._exact[key, call.request.rpc.message.payload][call.index]
        if own is not None:
            del self._named[key, own][call.index]
        return Match(call, tuple(found))

    def _compare(self, call: Call, live: Arrived) -> list[Difference]:
        return compare_messages(call.request, live.record, self._read, live.read, self._rules, self._ids)

    def _key(self, sender: str, role: str, record: RpcRecord, *, live: bool = False) -> Key:
        context = context_of(record)
        if context is not None and live:
            context = self._captured_context(context)
        if context is not None and unpack_id(context)[0] not in self._played:
            context = None  # it has another id here
        return sender, role, message_type_of(record.rpc.command), function_of(record), context

    def _captured_context(self, live: int) -> int:
        """A live context by its captured id, if a played worker made it: its counter is the same."""
        known = self._ids.translate_back(CONTEXT, live)
        if known is not None:
            return cast("int", known)
        worker, counter = unpack_id(live)
        captured = self._ids.translate_back(WORKER, worker)
        return live if captured is None else pack_id(cast("int", captured), counter)


def own_id(record: RpcRecord) -> Id | None:
    """The id that says which request this is; None: its function and its arguments do."""
    command = record.rpc.command
    if isinstance(command, PropagateGradientsReq):
        return AUTOGRAD_MESSAGE, command.autograd_metadata.autograd_message_id
    if isinstance(command, (RRefUserDelete, RRefForkRequest, RRefChildAccept)):
        return FORK, command.fork_id
    if isinstance(command, (PythonRRefFetchCall, ScriptRRefFetchCall)):
        return RREF, command.rref_id
    if isinstance(command, CleanupAutogradContextReq):
        return CONTEXT, command.context_id
    return None


def _distance(found: Sequence[Difference]) -> tuple[int, int]:
    """How unlike two messages are: differences beyond rounding first, then all."""
    beyond = sum(not one.tolerated and one.code not in ("ulp", "zero-sign") for one in found)
    return beyond, len(found)
