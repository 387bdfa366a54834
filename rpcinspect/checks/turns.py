"""When a worker waited for a call: it sent the request, got the answer, and went on at once.

In: a session. Out: for each worker its calls as `Turn`s, in the order of time. No message says whether its
sender waits. But where nothing else comes to a worker or leaves it from a request to its answer, and it sends
the next thing at once, and that again and again, it has waited: whoever does not wait sends the next thing
at any time, or at a pace of its own, which shows where calls take more or less time and the pace is the same.
Whoever keeps a pace of calls that all take as long can't be told from one who waits. The agents' own calls,
and the cleanup that they send by themselves, are passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from statistics import pvariance

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import CLEAN_UP
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.model import NONE, Session

AT_ONCE = 4
"""Whoever goes on within a quarter of the time that a call took does so by chance in one case of four."""

PACED = 5
"""So many turns show whether they keep a pace,"""
PACE_TIMES = 4
"""which varies so many times less than the time that calls take: after a wait it varies as much, or more."""

GOT, ASKED, ANSWERED, SENT = range(4)
"""What happens at a worker: an answer or a request comes, an answer or a request leaves; what happens at one
time happens in this order."""


class Turn(Struct, frozen=True, gc=False):
    """A call, from whose request to its answer nothing else came to its caller or left it."""

    row: int
    """Of the request."""
    answer: int
    """Row of the answer."""
    after: int
    """Row of the turn directly before it, after which the caller went on at once with this one; else NONE."""
    goes_on: bool
    """The caller sent the next thing at once."""
    took_ns: int
    pause_ns: int
    """From the answer to the next thing that came or was sent."""


def what_of(session: Session, row: int) -> str:
    """Returns the callee that a request names: of an object's method the name."""
    kind = session.provenance.kind_of(row)
    return kind.callee.what if kind.callee is not None else kind.function or type_name(kind.type)


def turns(session: Session, wanted: Collection[int]) -> dict[WorkerKey, list[Turn]]:
    """Returns caller → its turns in the order of time; `wanted`: only of these rows."""
    found: dict[WorkerKey, list[Turn]] = {}
    for member, turn in _turns(session) if wanted else ():
        if turn.row in wanted:
            found.setdefault(member, []).append(turn)
    return found


def chains(turns: Iterable[Turn]) -> Iterator[list[Turn]]:
    """Turns after each of which the caller went on at once with the next one, two at least, and not at a pace
    of its own."""
    chain: list[Turn] = []
    for turn in turns:
        if not chain or turn.after == NONE or turn.after != chain[-1].row:
            if len(chain) > 1 and not paced(chain[:-1]):
                yield chain
            chain = []
        chain.append(turn)
    if len(chain) > 1 and not paced(chain[:-1]):
        yield chain


def paced(turns: Sequence[Turn]) -> bool:
    """Returns whether a caller keeps a rhythm of its own: the times between its calls vary much less than the
    times until their answers, so that it does not wait for these."""
    took = [turn.took_ns for turn in turns]
    every = [turn.took_ns + turn.pause_ns for turn in turns]
    return len(took) >= PACED and pvariance(every) * PACE_TIMES < pvariance(took)


def _turns(session: Session) -> Iterator[tuple[WorkerKey, Turn]]:
    columns = session.messages
    begin, end = np.asarray(columns.time_ns), np.asarray(columns.end_time_ns)
    partner, pipe = np.asarray(columns.partner), np.asarray(columns.pipe)
    requests = program_requests(session)
    answered = requests[partner[requests] != NONE]
    answers = partner[answered]
    members: dict[WorkerKey, int] = {}
    ends = zip(session.jobs, session.clients, session.servers, strict=True)
    numbers = np.asarray([[members.setdefault((job, a), len(members)) for a in its] for job, *its in ends])
    caller, callee = numbers[:, 0], numbers[:, 1]
    which = np.concatenate([answered, requests, answered, requests])
    who = [caller[pipe[answered]], callee[pipe[requests]], callee[pipe[answered]], caller[pipe[requests]]]
    when = np.concatenate([end[answers], end[requests], begin[answers], begin[requests]])
    counts = [len(answered), len(requests), len(answered), len(requests)]
    what = np.repeat([GOT, ASKED, ANSWERED, SENT], counts)
    order = np.lexsort([what, when, np.concatenate(who)])
    events = [one[order] for one in (np.concatenate(who), when, what, which)]
    return _alone(list(members), events, partner)


def program_requests(session: Session) -> NDArray[np.int64]:
    """Rows of requests that a program has sent, or a library for it."""
    columns = session.messages
    asks = (np.asarray(columns.from_client) != 0) & (np.asarray(columns.control) == 0)
    return np.flatnonzero(asks & ~session.provenance.of_kinds(lambda kind: kind.type in CLEAN_UP))


def _alone(
    members: list[WorkerKey], events: Sequence[NDArray[np.int64]], partner: NDArray[np.int64]
) -> Iterator[tuple[WorkerKey, Turn]]:
    """Turns among all that happened, by worker and in the order of time: columns of who, when, what, row."""
    who, when, what, which = events
    same = who[1:] == who[:-1]
    alone = same & (what[:-1] == SENT) & (what[1:] == GOT) & (which[1:] == which[:-1])
    took, pause = when[1:] - when[:-1], np.append(when[2:] - when[1:-1], 0)
    goes_on = alone & (pause * AT_ONCE <= took)
    goes_on[:-1] &= same[1:] & (what[2:] >= ANSWERED)
    goes_on[-1:] = False
    before = -2
    for at in np.flatnonzero(alone).tolist():
        row = int(which[at])
        after = int(which[before]) if before == at - 2 and goes_on[before] else NONE
        times = int(took[at]), int(pause[at])
        yield members[who[at]], Turn(row, int(partner[row]), after, bool(goes_on[at]), *times)
        before = at
