"""Remote references: who made each one, who held a fork of it, and which were given back.

In: a session, whose provenance says what each message does to RRefs. Out: an `RRef` for each that a message
names. A user's fork begins with the message that makes the RRef or brings the fork, and ends with an
RREF_USER_DELETE; a fork that is sent to the owner ends there, since the owner holds the value itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter

from msgspec import Struct, field

from rpcinspect.session.model import NONE, Fork, RRef, Session
from rpcinspect.session.provenance import Event, Id, MessageKind, What

RRefKey = tuple[int, Id]
"""(job, id)."""


class _RRefMessages(Struct, eq=False):
    """Messages about one RRef, as indexes."""

    owner_end: tuple[int, str] | None = None
    """Row of the first message that went to or came from the owner as such, and the owner's label."""
    owner_id: tuple[int, int] | None = None
    """Row of the first message that names the owner, and its worker id."""
    created: int | None = None
    """The first, where a hostile capture has several."""
    made: set[Id] = field(default_factory=set)
    """Forks that came with a remote call."""
    forks: set[Id] = field(default_factory=set)
    begins: dict[Id, int] = field(default_factory=dict)
    receivers: dict[Id, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Of forks that pickles brought."""
    requested: dict[Id, int] = field(default_factory=dict)
    deleted: dict[Id, int] = field(default_factory=dict)
    fetches: list[int] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)


def read_rrefs(session: Session) -> tuple[RRef, ...]:
    """Returns all RRefs with a captured fork, by job and id."""
    seen: dict[RRefKey, _RRefMessages] = defaultdict(_RRefMessages)
    accepted: dict[RRefKey, int] = {}
    pipes = session.messages.pipe
    for event in sorted(session.provenance.events(), key=lambda event: int(session.index[event.row])):
        job, index = session.jobs[pipes[event.row]], int(session.index[event.row])
        if event.what == What.ACCEPTED:
            accepted[job, event.fork] = index
        else:
            _note(seen[job, event.rref], session, event, index)
    reader = _RRefReader(session, accepted)
    return tuple(reader.rref(*key, seen[key]) for key in sorted(seen) if seen[key].forks)


def _note(its: _RRefMessages, session: Session, event: Event, index: int) -> None:
    what, row, fork = event.what, event.row, event.fork
    if what == What.FETCHED:
        its.fetches.append(index)
    elif what == What.DIFFERENTIATED:
        its.backwards.append(index)
    else:
        its.forks.add(fork)
        if what == What.BROUGHT:
            its.receivers[fork].add(session.destination(row))
            named = row, event.owner
            its.owner_id = min(its.owner_id or named, named, key=itemgetter(0))
        else:
            end = row, session.servers[session.messages.pipe[row]]
            its.owner_end = min(its.owner_end or end, end, key=itemgetter(0))
        if what == What.MADE:
            its.created = index if its.created is None else its.created
            if fork not in its.begins:
                its.made.add(fork)
        if what in (What.MADE, What.BROUGHT):
            its.begins.setdefault(fork, index)
        elif what == What.REQUESTED:
            its.requested[fork] = index
        elif what == What.DELETED:
            its.deleted[fork] = index


class _RRefReader:
    def __init__(self, session: Session, accepted: Mapping[RRefKey, int]) -> None:
        self._session = session
        self._accepted = accepted

    def rref(self, job: int, rref: Id, seen: _RRefMessages) -> RRef:
        owner: str | None = None
        if seen.owner_end is not None:
            owner = seen.owner_end[1]
        elif seen.owner_id is not None:
            owner = self._session.by_id(seen.owner_id[1], job)
        elif seen.fetches or seen.backwards:
            owner = self._end(min([*seen.fetches, *seen.backwards]), sends=False)
        creator = self._end(seen.created, sends=True)
        return RRef(
            rref_id=rref,
            job=job,
            owner=owner,
            creator=self._session.names_of_ids[job].get(rref[0]) if creator is None else creator,
            what=self._kind_of(seen.created).function if seen.created is not None else None,
            created=seen.created,
            confirmed=self._answer(seen.created),
            failed=any(self._failed(self._answer(asked)) for asked in (seen.created, *seen.fetches)),
            forks=tuple(self._forks(job, rref, owner, seen)),
            fetches=tuple(seen.fetches),
            backwards=tuple(seen.backwards),
        )

    def _forks(self, job: int, rref: Id, owner: str | None, seen: _RRefMessages) -> Iterable[Fork]:
        for fork in sorted(seen.forks):  # by id, not by the order in which streams were read
            begin, deleted = seen.begins.get(fork), seen.deleted.get(fork)
            made = fork in seen.made
            # a fork that was sent back to the owner ends there: the owner holds the value itself
            home = fork == rref or (owner is not None and owner in seen.receivers.get(fork, ()))
            yield Fork(
                fork_id=fork,
                holder=self._holder(begin, made, seen, fork),
                giver=None if made else self._end(begin, sends=True),
                begin=begin,
                requested=seen.requested.get(fork),
                accepted=self._accepted.get((job, fork)),
                deleted=deleted,
                acknowledged=self._answer(deleted),
                state="deleted" if deleted is not None else "home" if home else "alive",
            )

    def _holder(self, begin: int | None, made: bool, seen: _RRefMessages, fork: Id) -> str | None:
        """Returns who got the fork: the receiver of the message that brought it, else the sender of a message
        about it."""
        if begin is not None:
            return self._end(begin, sends=made)
        told = seen.requested.get(fork)
        return self._end(seen.deleted.get(fork) if told is None else told, sends=True)

    def _end(self, index: int | None, *, sends: bool) -> str | None:
        if index is None:
            return None
        row = int(self._session.order[index])
        return self._session.source(row) if sends else self._session.destination(row)

    def _answer(self, index: int | None) -> int | None:
        if index is None:
            return None
        partner = self._session.messages.partner[int(self._session.order[index])]
        return None if partner == NONE else int(self._session.index[partner])

    def _kind_of(self, index: int) -> MessageKind:
        return self._session.provenance.kind_of(int(self._session.order[index]))

    def _failed(self, index: int | None) -> bool:
        return index is not None and self._kind_of(index).failed
