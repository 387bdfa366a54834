"""Which captured request a live worker's request repeats.

In: the captured requests of live workers to played ones, and a live one. Out: the captured one that it is
most like, with the differences. Message numbers tell nothing, since each side counts its own; a pair must
have sender, receiver, kind and function in common, and gradients the edge. Of several, the first equal one is
taken, else the nearest: workers that run several requests at once send in another order than they did.

What caused a captured request, and whether the plan expects it, decides nothing where a live one equals it:
that one comes first among equals only. It is equal, too, to one that an unlike request was taken for before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias, cast

from msgspec import Struct

from rpcinspect.equality.difference import Difference, verdict
from rpcinspect.equality.ids import AUTOGRAD_MESSAGE, CONTEXT, FORK, RREF, WORKER
from rpcinspect.pickles.semantic import python_udf
from rpcinspect.replayer.planning.model import Spare, some_of
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.translate import KindAndId, LiveMessage
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
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
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.provenance import marks_of

MAX_TRIALS = 256
"""Captured requests that one live request is compared with, of those that are expected, and of others."""

NOTHING_LIKE_IT = "no request like it was captured"

RequestKey: TypeAlias = tuple[str, str, int, str | None, int | None]


Mark: TypeAlias = KindAndId | bytes | tuple[int, ...] | None
"""What requests are looked up by: the captured id of those that are nothing but an id or the gradient of one,
the payload, marks of the values (see `session/provenance.py`); None: all of a kind."""


class RequestMatch(Struct, frozen=True):
    """The captured request that a live one repeats, and what differs in the live one."""

    call: Exchange
    differences: tuple[Difference, ...]


class _Pool:
    """Captured requests, in order, by what can be looked up of them."""

    def __init__(self) -> None:
        self._by: dict[tuple[RequestKey, Mark], dict[int, Exchange]] = defaultdict(dict)

    def add(self, key: RequestKey, call: Exchange) -> None:
        """Adds a request."""
        for mark in (None, own_id(call.request), *_marks(call.request)):
            self._by[key, mark][call.index] = call

    def remove(self, key: RequestKey, call: Exchange) -> None:
        """Removes a request, if it is here."""
        for mark in (None, own_id(call.request), *_marks(call.request)):
            self._by[key, mark].pop(call.index, None)

    def of(self, key: RequestKey, mark: Mark = None) -> Mapping[int, Exchange]:
        """Returns the requests of a kind that have this mark, by index."""
        return self._by.get((key, mark), {})

    def likeliest(self, key: RequestKey, live: RpcRecord) -> Iterator[Exchange]:
        """Yields all of a kind, those with the same bytes first, then those with the same values."""
        payload, values = _marks(live)
        exact, every = self.of(key, payload), self.of(key)
        yield from exact.values()
        alike = self.of(key, values) if len(every) > MAX_TRIALS else {}
        yield from (call for index, call in alike.items() if index not in exact)
        yield from (call for index, call in every.items() if index not in exact and index not in alike)


class Expected:
    """The captured requests of live workers that were not repeated yet."""

    def __init__(
        self,
        inputs: SessionInputs,
        calls: Iterable[Exchange],
        spare: Mapping[Spare, Iterable[Exchange]],
    ) -> None:
        """`calls`: those that are expected; `spare`: those that are not. The session's ids learn from every
        match."""
        self._inputs = inputs
        self._ids = inputs.ids
        self._played = frozenset(inputs.worker_ids[role] for role in inputs.planned.cast.roles)
        """Whose autograd contexts have the captured counters."""
        self._planned, self._like, self._equal, self._taken = _Pool(), _Pool(), _Pool(), _Pool()
        """Those that are expected; of those that are not, the ones that may be and all others; and those that
        a request was taken for which is not equal."""
        self._captured: Counter[RequestKey] = Counter()
        """How many of each kind there were at the beginning."""
        like, equal = spare.get("like", ()), spare.get("equal", ())
        for pool, its in ((self._planned, calls), (self._like, like), (self._equal, equal)):
            for call in its:
                key = self._key(call.caller, call.callee, call.request)
                pool.add(key, call)
                self._captured[key] += 1

    def match(self, sender: str, role: str, live: LiveMessage) -> RequestMatch | None:
        """The captured request that this one repeats; it won't be found again, unless it is not equal to this
        one and an equal one comes. None: there is none."""
        key = self._key(sender, role, live.record, live=True)
        best: tuple[tuple[bool, int, int], Exchange] | None = None
        for candidates, nearest in self._candidates(key, live):
            for call in islice(candidates, MAX_TRIALS):
                mark = self._ids.mark()
                found = self._inputs.compare(call.request, live)
                contradicted = self._ids.refused > mark[1]
                if not contradicted and verdict(found, self._inputs.rules) == "identical":
                    return self._take(key, call, found, equal=True)
                self._ids.rollback(mark)
                rank = (contradicted, *_distance(found))
                if nearest and (best is None or rank < best[0]):
                    best = (rank, call)
        if best is None:
            return None
        (other_ids, *_), call = best
        if other_ids and own_id(call.request) is not None:
            return None  # the id says which one it is, and it is none of those
        return self._take(key, call, self._inputs.compare(call.request, live), equal=False)

    def why_not(self, sender: str, role: str, live: LiveMessage) -> str:
        """Says why a live request repeats no captured one."""
        key = self._key(sender, role, live.record, live=True)
        count, left = self._captured[key], [pool.of(key) for pool in (self._like, self._equal)]
        if not count:
            return NOTHING_LIKE_IT
        if own_id(live.record) is not None:
            return f"of {count:,} of its kind that were captured, none is about the same id"
        unlike = sorted(index for its in left for index in its)
        if not unlike:
            return f"{count:,} of its kind were captured, and that many have come before"
        shown = some_of([f"#{index}" for index in unlike])
        return f"it equals none of its kind that are left, all of which the plan leaves out ({shown})"

    def _candidates(self, key: RequestKey, live: LiveMessage) -> Iterator[tuple[Iterable[Exchange], bool]]:
        """The likeliest first, and whether the nearest of them will do where none is equal; only those with
        the same id, where it is known which that is."""
        own, record = own_id(live.record), live.record
        captured = None if own is None else self._ids.translate_back(*own)
        if own is not None and captured is not None:
            for pool in (self._planned, self._like, self._equal):
                yield pool.of(key, (own[0], captured)).values(), True  # type: ignore[arg-type]
            return
        yield self._planned.likeliest(key, record), True
        if own is None:  # any other id that is not known would be equal to any that is not
            yield self._like.likeliest(key, record), not self._planned.of(key)
            yield self._equal.likeliest(key, record), False
            yield self._taken.likeliest(key, record), False

    def _take(self, key: RequestKey, call: Exchange, found: list[Difference], *, equal: bool) -> RequestMatch:
        for pool in (self._planned, self._like, self._equal, self._taken):
            pool.remove(key, call)
        if not equal:
            self._taken.add(key, call)
        return RequestMatch(call, tuple(found))

    def _key(self, sender: str, role: str, record: RpcRecord, *, live: bool = False) -> RequestKey:
        context = context_of(record)
        if context is not None and live:
            context = self._captured_context(context)
        if context is not None and unpack_id(context)[0] not in self._played:
            context = None  # it has another id here
        return sender, role, message_type_of(record.rpc.command), function_of(record), context

    def _captured_context(self, live: int) -> int:
        """Returns a live context by its captured id, if a played worker made it: the counter is the same."""
        known = self._ids.translate_back(CONTEXT, live)
        if known is not None:
            return cast("int", known)
        worker, counter = unpack_id(live)
        captured = self._ids.translate_back(WORKER, worker)
        return live if captured is None else pack_id(cast("int", captured), counter)


def own_id(record: RpcRecord) -> KindAndId | None:
    """Returns the id that identifies the request; None: function and arguments do."""
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


def _marks(record: RpcRecord) -> tuple[bytes, tuple[int, ...]]:
    """The payload, and marks of the arguments of a call in Python, whatever ids are beside them."""
    pickle = record.facts.pickle if isinstance(record.rpc.command, (PythonCall, PythonRemoteCall)) else None
    udf = None if pickle is None else python_udf(pickle.root)
    return record.rpc.message.payload, () if udf is None else marks_of([udf.args, udf.kwargs])


def _distance(found: Sequence[Difference]) -> tuple[int, int]:
    """Counts the differences of two messages: those beyond rounding, and all."""
    beyond = sum(not one.tolerated and one.code not in ("ulp", "zero-sign") for one in found)
    return beyond, len(found)
