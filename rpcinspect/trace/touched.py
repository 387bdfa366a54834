"""Which contexts and remote references some messages take part in.

In: every record as it becomes complete; then the session and which rows are meant. Out: `Touched`. A context
holds the requests that belong to it and their answers; an RRef what makes it, fetches it, differentiates it,
brings or accounts for its forks, and the answers to those. Kept are eight bytes for each of these messages.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias, TypeVar

import numpy as np
from msgspec import Struct

from rpcinspect.rpc.questions import context_of, created, fork_of, rref_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, MessageColumns, Session

Pair: TypeAlias = tuple[int, int]
Key = TypeVar("Key")


class Touched(Struct, frozen=True):
    """Ids are unique in a job only."""

    contexts: frozenset[tuple[int, int]] = frozenset()
    """(job, context id)."""
    rrefs: frozenset[tuple[int, Pair]] = frozenset()
    """(job, RRef id)."""


class Touching:
    """The stage: `feed` every record, then `finish`."""

    def __init__(self) -> None:
        self._contexts: dict[int, array[int]] = defaultdict(_rows)
        self._rrefs: dict[Pair, array[int]] = defaultdict(_rows)
        self._accepts: dict[Pair, array[int]] = defaultdict(_rows)
        """By the fork: an RREF_CHILD_ACCEPT does not name its RRef."""
        self._carriers: dict[Pair, array[int]] = defaultdict(_rows)
        """Messages that bring a fork: what answers them has nothing to do with it."""

    def feed(self, record: RpcRecord) -> None:
        """Takes the next record."""
        row = record.row
        context = context_of(record)
        if context is not None:
            self._contexts[context].append(row)
        for fork in record.facts.forks:
            self._carriers[fork.rref_id].append(row)
        made = created(record)
        rref = made[0] if made is not None else rref_of(record)
        if rref is not None:
            self._rrefs[rref].append(row)
            return
        accepted = fork_of(record)
        if accepted is not None:
            self._accepts[accepted].append(row)

    def finish(self, session: Session, rows: bytes) -> Touched:
        """What the messages take part in that have a 1 in `rows`."""
        jobs, pipes = session.jobs, session.messages.pipe
        exchanged = _or_answered_by(rows, session.messages)

        def met(noted: Mapping[Key, array[int]], by: bytes) -> Iterator[tuple[int, Key]]:
            return ((jobs[pipes[row]], key) for key, its in noted.items() for row in its if by[row])

        rrefs = {*met(self._rrefs, exchanged), *met(self._carriers, rows)}
        accepted = frozenset(met(self._accepts, exchanged))
        if accepted:
            for rref in session.rrefs:
                if any((rref.job, fork.to_value()) in accepted for fork in rref.forks):
                    rrefs.add((rref.job, rref.rref_id.to_value()))
        return Touched(frozenset(met(self._contexts, exchanged)), frozenset(rrefs))


def _rows() -> array[int]:
    return array("q")


def _or_answered_by(rows: bytes, columns: MessageColumns) -> bytes:
    """The same, with each request whose answer is among them."""
    picked = np.frombuffer(rows, dtype=np.uint8).copy()
    partner = np.asarray(columns.partner)
    requests = np.flatnonzero((np.asarray(columns.from_client) != 0) & (partner != NONE))
    picked[requests] |= picked[partner[requests]]
    return bytes(picked)
