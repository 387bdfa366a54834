"""Which contexts and remote references some messages take part in.

In: a session, and which rows are meant. Out: `Participation`. A context holds the requests that belong to it
and their answers; an RRef what makes it, fetches it, differentiates it, brings or accounts for its forks, and
the answers to those.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rpcinspect.session.model import NONE, MessageColumns, Session
from rpcinspect.session.provenance import NO_CONTEXT, Id, What


class Participation(Struct, frozen=True):
    """Ids are unique in a job only."""

    contexts: frozenset[tuple[int, int]] = frozenset()
    """(job, context id)."""
    rrefs: frozenset[tuple[int, Id]] = frozenset()
    """(job, RRef id)."""


def participation_of(session: Session, rows: bytes) -> Participation:
    """What the messages take part in that have a 1 in `rows`."""
    provenance, jobs, pipes = session.provenance, session.jobs, session.messages.pipe
    exchanged = _or_answered_by(rows, session.messages)
    contexts = frozenset(
        (jobs[pipes[row]], context)
        for row, context in enumerate(provenance.context)
        if context != NO_CONTEXT and exchanged[row]
    )
    rrefs: set[tuple[int, Id]] = set()
    accepted: set[tuple[int, Id]] = set()
    """Forks: an RREF_CHILD_ACCEPT does not name its RRef."""
    for event in provenance.events():
        # what answers a message that brings a fork has nothing to do with it
        if not (rows if event.what == What.BROUGHT else exchanged)[event.row] or event.what == What.CONFIRMED:
            continue
        job = jobs[pipes[event.row]]
        if event.what == What.ACCEPTED:
            accepted.add((job, event.fork))
        else:
            rrefs.add((job, event.rref))
    if accepted:
        for rref in session.rrefs:
            if any((rref.job, fork.fork_id) in accepted for fork in rref.forks):
                rrefs.add((rref.job, rref.rref_id))
    return Participation(contexts, frozenset(rrefs))


def _or_answered_by(rows: bytes, columns: MessageColumns) -> bytes:
    """Returns the messages, with each request whose answer is among them."""
    picked = np.frombuffer(rows, dtype=np.uint8).copy()
    partner = np.asarray(columns.partner)
    requests = np.flatnonzero((np.asarray(columns.from_client) != 0) & (partner != NONE))
    picked[requests] |= picked[partner[requests]]
    return bytes(picked)
