"""`empty-results`: answers that hold nothing, and for which the caller waited.

In: the turns of each caller and what their answers hold. Out: findings. A call that is made for its effect is
as it should be; what is told is what the waiting cost. It is known only where a caller went on at once after
several answers in a row (`turns`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from rpcinspect.checks.contents import Contents, Holds
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.shares import Shares
from rpcinspect.checks.stage import MAX_INDEXES
from rpcinspect.checks.turns import Member, Turn, chains, what_of
from rpcinspect.session.model import Finding
from rpcinspect.session.words import counted, duration, numbers, several, unique

LEAST = 10
"""Calls that are many."""
IN_A_ROW = 5
"""Turns of a chain, after all of which but the last the caller went on at once: by chance that is so in one
case of 256."""


def empty_results(
    run: CaptureEvidence,
    shares: Shares,
    contents: Contents,
    turns: Mapping[Member, Sequence[Turn]],
    told: Collection[int],
) -> Iterator[Finding]:
    """Of all calls but those that were told of."""
    session, holds, sizes = run.session, contents.holds(), contents.calls()
    for (job, caller), its in turns.items():
        waited: dict[str, list[int]] = defaultdict(list)
        for turn in (turn for chain in chains(its) if len(chain) >= IN_A_ROW for turn in chain):
            if turn.goes_on and holds.get(turn.answer) == Holds.NOTHING and turn.row not in told:
                waited[what_of(session, turn.row)].append(turn.row)
        for what, rows in waited.items():
            took = sum(session.messages.latency_ns(row) or 0 for row in rows)
            if len(rows) >= LEAST and shares.worth_telling(job, took):
                callees, indexes = unique(map(session.destination, rows)), session.indexes(rows)
                yield Finding(
                    code="empty-results",
                    severity="info",
                    text=f"{caller} waited {duration(took)} ({shares.of(job, took)}) for "
                    f"{counted(len(rows), 'answer')} of {several(callees)} to {what} ({numbers(indexes)}) "
                    f"that hold nothing; the requests are {sum(sizes[row] for row in rows):,} bytes.",
                    remedy="A call may well be made for what it does, or to wait (a barrier). Where the next "
                    "step does not depend on that, it costs less to wait once for many (rpc_async), to send "
                    "many in one call, or not to wait at all (rpc.remote).",
                    messages=indexes[:MAX_INDEXES],
                    workers=unique([caller, *callees]),
                )
