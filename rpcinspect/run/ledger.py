"""The ledger of remote references: who made each one, who held a fork of it, and which were given back.

In: a session and its records in the order of time. Out: an `RRefStory` per RRef. A user's fork begins with
the message that makes the RRef or brings the fork, and ends with an RREF_USER_DELETE; a fork that is sent to
the owner ends there, since the owner holds the value itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from rpcinspect.rpc.questions import failed, function_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, RRef, Session
from rpcinspect.session.provenance import Event, What

Pair = tuple[int, int]
Key = tuple[int, Pair]
"""(job, id)."""


class ForkStory(Struct, frozen=True, kw_only=True):
    """One fork, as far as it was seen."""

    fork_id: Pair
    holder: str | None
    """The worker that got it."""
    giver: str | None
    """The worker that sent it; None of a fork that came with the RRef itself."""
    begin: int | None
    """Index of the message that made the RRef, or brought the fork."""
    requested: int | None
    """RREF_FORK_REQUEST: the holder told the owner."""
    accepted: int | None
    """RREF_CHILD_ACCEPT: the holder told the giver."""
    deleted: int | None
    """RREF_USER_DELETE."""
    acknowledged: int | None
    """The owner's answer to that."""
    state: str
    """`alive`, `deleted`, or `home`: it was sent to the owner, or is the owner's own."""


class RRefStory(Struct, frozen=True, kw_only=True):
    """One RRef."""

    rref_id: Pair
    job: int
    owner: str | None
    creator: str | None
    """The worker that called `remote`; the owner of one that was made from a local value."""
    what: str | None
    """The function whose result it is; None of a local value, or where the call was not captured."""
    created: int | None
    """Index of the remote call."""
    confirmed: int | None
    """Index of its answer."""
    failed: bool
    """The function raised: whoever fetches the value gets the error."""
    forks: tuple[ForkStory, ...]
    fetches: tuple[int, ...]
    """Indexes of the requests for its value."""
    backwards: tuple[int, ...]
    """Indexes of RREF_BACKWARD_REQs."""

    @property
    def alive(self) -> tuple[ForkStory, ...]:
        """Forks whose end was not seen."""
        return tuple(fork for fork in self.forks if fork.state == "alive")


class _Seen(Struct):
    """Messages about one RRef."""

    created: int | None = None
    begins: dict[Pair, int] = field(default_factory=dict)
    requested: dict[Pair, int] = field(default_factory=dict)
    deleted: dict[Pair, int] = field(default_factory=dict)
    fetches: list[int] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)


def read_ledger(session: Session, messages: Sequence[RpcRecord]) -> tuple[RRefStory, ...]:
    """The stories in the order of the session's RRefs; `messages` in the order of time."""
    seen: dict[Key, _Seen] = defaultdict(_Seen)
    accepted: dict[Key, int] = {}
    pipes = session.messages.pipe
    for event in sorted(session.provenance.events(), key=lambda event: int(session.index[event.row])):
        job, index = session.jobs[pipes[event.row]], int(session.index[event.row])
        if event.what == What.ACCEPTED:
            accepted[job, event.fork] = index
        else:
            _note(seen[job, event.rref], event, index)
    reader = _Reader(session, messages, accepted)
    return tuple(reader.story(rref, seen[rref.job, rref.rref_id.to_value()]) for rref in session.rrefs)


def _note(its: _Seen, event: Event, index: int) -> None:
    if event.what == What.MADE:
        its.created = index
    if event.what in (What.MADE, What.BROUGHT):
        its.begins.setdefault(event.fork, index)
    elif event.what == What.REQUESTED:
        its.requested[event.fork] = index
    elif event.what == What.DELETED:
        its.deleted[event.fork] = index
    elif event.what == What.FETCHED:
        its.fetches.append(index)
    elif event.what == What.DIFFERENTIATED:
        its.backwards.append(index)


class _Reader:
    def __init__(self, session: Session, messages: Sequence[RpcRecord], accepted: Mapping[Key, int]) -> None:
        self._session = session
        self._messages = messages
        self._accepted = accepted
        self._names = {(worker.job, worker.id): worker.name for worker in session.workers}

    def story(self, rref: RRef, seen: _Seen) -> RRefStory:
        answer = self._answer(seen.created)
        creator = self._end(seen.created, sends=True)
        if creator is None:
            creator = self._names.get((rref.job, rref.rref_id.created_on))
        return RRefStory(
            rref_id=rref.rref_id.to_value(),
            job=rref.job,
            owner=rref.owner,
            creator=creator,
            what=None if seen.created is None else function_of(self._messages[seen.created]),
            created=seen.created,
            confirmed=answer,
            failed=answer is not None and failed(self._messages[answer]),
            forks=tuple(self._forks(rref, seen)),
            fetches=tuple(seen.fetches),
            backwards=tuple(seen.backwards),
        )

    def _forks(self, rref: RRef, seen: _Seen) -> Iterable[ForkStory]:
        live, gone = set(rref.live_forks), set(rref.deleted)
        for fork in rref.forks:
            fork_id = fork.to_value()
            begin, deleted = seen.begins.get(fork_id), seen.deleted.get(fork_id)
            made = begin is not None and begin == seen.created
            yield ForkStory(
                fork_id=fork_id,
                holder=self._holder(begin, made, seen, fork_id),
                giver=None if made else self._end(begin, sends=True),
                begin=begin,
                requested=seen.requested.get(fork_id),
                accepted=self._accepted.get((rref.job, fork_id)),
                deleted=deleted,
                acknowledged=self._answer(deleted),
                state="alive" if fork in live else "deleted" if fork in gone else "home",
            )

    def _holder(self, begin: int | None, made: bool, seen: _Seen, fork_id: Pair) -> str | None:
        """Who got the fork: the receiver of what brought it; else the sender of what it says of the fork."""
        if begin is not None:
            return self._end(begin, sends=made)
        for index in (seen.requested.get(fork_id), seen.deleted.get(fork_id)):
            if index is not None:
                return self._end(index, sends=True)
        return None

    def _end(self, index: int | None, *, sends: bool) -> str | None:
        if index is None:
            return None
        row = self._messages[index].row
        return self._session.source(row) if sends else self._session.destination(row)

    def _answer(self, index: int | None) -> int | None:
        if index is None:
            return None
        partner = self._session.messages.partner[self._messages[index].row]
        return None if partner == NONE else int(self._session.index[partner])
