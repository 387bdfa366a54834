"""Which captured request a live worker's request repeats.

In: the captured requests that live workers are expected to send, and a live one. Out: the captured one that
it is most like, with the differences. Message numbers tell nothing, since each side counts its own; a pair
must have sender, receiver, kind and function in common, and gradients the edge. Of several, the first equal
one is taken, else the one with the fewest differences: workers that run several requests at once send in
another order than they did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from rpcinspect.causes.calls import HOUSEKEEPING, Call, context_of, function_of
from rpcinspect.equality.difference import Difference, verdict
from rpcinspect.equality.elements import Read
from rpcinspect.equality.ids import IdMap
from rpcinspect.equality.messages import compare_messages
from rpcinspect.equality.rules import Rules
from rpcinspect.replay.arrived import Arrived
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import unpack_id

MAX_TRIALS = 256
"""Captured requests that one live request is compared with."""

Key: TypeAlias = tuple[str, str, int, str | None, int | None]


@dataclass(frozen=True, slots=True)
class Match:
    """A captured request and what a live one has in other form."""

    call: Call
    differences: tuple[Difference, ...]


class Expected:
    """The captured requests of live workers that were not repeated yet."""

    def __init__(
        self, calls: Iterable[Call], read: Read, rules: Rules, ids: IdMap, played: Collection[int] = ()
    ) -> None:
        """`read`: of captured bytes; `ids` learns from every match; `played`: ids of played workers, whose
        autograd contexts have the captured ids.
        """
        self._played = frozenset(played)
        self._open: dict[Key, dict[int, Call]] = defaultdict(dict)
        for call in calls:
            self._open[self._key(call.caller, call.callee, call.request)][call.index] = call
        self._read = read
        self._rules = rules
        self._ids = ids

    def match(self, sender: str, role: str, live: Arrived) -> Match | None:
        """The captured request that this one repeats; it won't be found again. None: there is none."""
        candidates = self._open.get(self._key(sender, role, live.record))
        if not candidates:
            return None
        best: tuple[tuple[int, int], Call] | None = None
        for call in list(candidates.values())[:MAX_TRIALS]:
            mark = self._ids.mark()
            found = self._compare(call, live)
            contradicted = self._ids.mark()[1] > mark[1]
            if not contradicted and verdict(found, self._rules) == "identical":
                return self._take(candidates, call, found)
            self._ids.rollback(mark)
            rank = (int(contradicted), len(found))
            if best is None or rank < best[0]:
                best = (rank, call)
        assert best is not None
        (other_ids, _), call = best
        if other_ids and call.kind in BY_ID:
            return None  # the id says which one it is, and it is none of those
        return self._take(candidates, call, self._compare(call, live))

    def _take(self, candidates: dict[int, Call], call: Call, found: list[Difference]) -> Match:
        del candidates[call.index]
        return Match(call, tuple(found))

    def _compare(self, call: Call, live: Arrived) -> list[Difference]:
        return compare_messages(call.request, live.record, self._read, live.read, self._rules, self._ids)

    def _key(self, sender: str, role: str, record: RpcRecord) -> Key:
        context = context_of(record)
        if context is not None and unpack_id(context)[0] not in self._played:
            context = None  # it has another id here
        return sender, role, message_type_of(record.rpc.command), function_of(record), context


BY_ID = HOUSEKEEPING | {
    MessageType.BACKWARD_AUTOGRAD_REQ,
    MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ,
    MessageType.PYTHON_RREF_FETCH_CALL,
    MessageType.SCRIPT_RREF_FETCH_CALL,
}
"""What is nothing but an id, or the gradient of one."""
