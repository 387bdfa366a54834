"""Under which ids the workers of a session join.

In: what the capture tells of workers. Out: an id for each, the captured one where it is known: ids are part
of the ids of contexts, RRefs and autograd messages, so that these stay as they were, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcinspect.errors import ReplayError
from rpcinspect.replay.planning.sessions import Cast
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.model import Session

MAX_ID = (1 << 15) - 1
"""Worker ids have 16 bits, with a sign."""


def worker_ids(session: Session, cast: Cast, calls: Iterable[Exchange]) -> dict[str, int]:
    """Name → id of everybody in a session. Raises `ReplayError` if the ids can't be told apart."""
    names = (*cast.roles, *cast.live)
    found: dict[str, int] = {}
    for worker in session.workers:
        if worker.job == cast.job and worker.name in names and worker.id is not None:
            found.setdefault(worker.name, worker.id)
    for call in calls:
        _learn(found, call, names)
    taken = set(found.values())
    free = (number for number in range(MAX_ID) if number not in taken)
    for name in names:
        if name not in found:  # nothing of it carries an id, or it was not captured
            found[name] = next(free)
    for number in set(found.values()):
        same = sorted(name for name in found if found[name] == number)
        if len(same) > 1:
            raise ReplayError(f"workers of the capture have the same id {number}: {', '.join(same)}")
    return found


def _learn(found: dict[str, int], call: Exchange, names: tuple[str, ...]) -> None:
    """Autograd envelopes carry the sender's id."""
    for record, name in ((call.request, call.caller), (call.response, call.callee)):
        if record is not None and name in names and name not in found:
            for envelope in record.rpc.envelopes:
                if isinstance(envelope, RpcWithAutograd) and envelope.from_worker_id >= 0:
                    found[name] = envelope.from_worker_id
