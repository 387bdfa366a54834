"""Connections whose beginning was not captured → the pipes whose tensors they carry.

In: at the end, pipes with tensors that no connection is known to carry, and connections that nothing has
explained. Out: which belong together, and where the last tensor ends, where the capture leaves one answer.

An answer is possible if a connection between the pipe's two hosts ends, in both directions, with frames of
just the lengths that the pipe's last descriptors announce. Where several are possible, time decides between
them if it does so clearly: a descriptor and its tensors are written by one thread one after the other, so
they are captured close to each other; the right answer must be closer by `MARGIN` than every other. A thread
may be held up between the two, so an answer is not dropped for the tensors of a single message, unless it
also asks for more tensors that were never sent. Where just the bytes that would tell were lost, a connection
is never the answer, but keeps others from being it.

There is nothing upstream to mirror: with the handshake, TensorPipe knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from msgspec import Struct

from rpcinspect.tcp.segment import Endpoint
from rpcinspect.tcp.stream import Connection, Stream
from rpcinspect.tensorpipe.align import fits
from rpcinspect.tensorpipe.channel import DueFrame, ended_well
from rpcinspect.tensorpipe.frame import HEADER_BYTES
from rpcinspect.tensorpipe.pipe import BASIC, PipeState
from rpcinspect.tensorpipe.records import TpMessage

MARGIN = 4.0
FLOOR_NS = 20_000
"""Distances below this one count as equal."""
FAR_NS = 1_000_000_000
"""Distances count up to this one, so that a single late tensor does not decide."""
MAX_RIVALS = 256
"""Of so many connections to one address the right one is looked for. Each pipe looks at each of them."""
MAX_UNSENT = 4
"""Of a connection that was not closed in order, so many of the last tensors may never have been sent."""


Distances = list[tuple[TpMessage, int]]
"""(message, nanoseconds between its descriptor and a tensor) for each tensor that was captured."""


class LaneCandidate(Struct, frozen=True):
    """A connection that is perhaps a lane of some pipe."""

    connection: Connection
    start: int | None
    """Where the client's frames begin, behind its hello; None: the hello was not captured."""


class LaneMatch(Struct, frozen=True):
    """A possible answer: this pipe's tensors are on this connection, but for the last `unsent` of each
    direction.
    """

    state: PipeState
    orphan: LaneCandidate
    unsent: tuple[int, int]
    distance_ns: float
    """Mean distance in time between descriptors and tensors."""
    usual_ns: float
    """The same without the message that is the farthest from its tensors, if there are several."""
    seen: bool
    """Whether a captured length confirms it in each direction; else it is possible, but never the answer."""


def adopt(states: Sequence[PipeState], orphans: Sequence[LaneCandidate]) -> set[int]:
    """Gives connections to the pipes that wait for one; returns the numbers of those that were given."""
    between: dict[tuple[str, Endpoint], list[LaneCandidate]] = defaultdict(list)
    for orphan in orphans:
        for stream in orphan.connection.streams:
            between[stream.flow.source.host, stream.flow.destination].append(orphan)
    matches = [
        match
        for state in states
        if state.orphaned
        for orphan in _rivals(between.get((state.pipe.client.host, state.pipe.server), ()))
        for match in _matches(state, orphan)
    ]
    given: set[int] = set()
    while decided := _decided(matches):
        for match in decided:
            _give(match)
            given.add(match.orphan.connection.number)
        states_left = {id(m.state) for m in matches} - {id(m.state) for m in decided}
        matches = [
            m for m in matches if id(m.state) in states_left and m.orphan.connection.number not in given
        ]
    return given


def _rivals(orphans: Sequence[LaneCandidate]) -> Sequence[LaneCandidate]:
    """The connections that are looked at for one pipe: where there are too many, none is."""
    return orphans if len(orphans) <= MAX_RIVALS else ()


def hosts_of(orphans: Iterable[LaneCandidate]) -> set[tuple[str, str]]:
    """Returns the (source, destination) hosts of these connections: only pipes between the same two hosts, at
    any port, can have tensors in one of them."""
    return {
        (stream.flow.source.host, stream.flow.destination.host)
        for orphan in orphans
        for stream in orphan.connection.streams
        if stream.end is not None
    }


def _decided(matches: Sequence[LaneMatch]) -> list[LaneMatch]:
    """The answers that are clear. No two of them are for the same pipe or the same connection: each would
    have to be the closer one by far.
    """
    for_state: dict[int, list[LaneMatch]] = defaultdict(list)
    for_orphan: dict[int, list[LaneMatch]] = defaultdict(list)
    for match in matches:
        for_state[id(match.state)].append(match)
        if match.seen:
            for_orphan[match.orphan.connection.number].append(match)
    return [
        match
        for match in matches
        if _is_clear(match, for_state[id(match.state)])
        and _is_clear(match, for_orphan[match.orphan.connection.number])
    ]


def _is_clear(match: LaneMatch, rivals: Sequence[LaneMatch]) -> bool:
    """Whether the answer is plausible in time, and every other one is clearly worse."""
    if not match.seen or match.distance_ns > FAR_NS / 2:
        return False
    worse = MARGIN * max(match.distance_ns, FLOOR_NS)
    return all(
        (other.distance_ns if _wants_more_luck(other, match) else other.usual_ns) >= worse
        for other in rivals
        if other is not match
    )


def _wants_more_luck(other: LaneMatch, match: LaneMatch) -> bool:
    """Returns whether a match has the same pair as another and skips more tensors, which is less likely."""
    same = other.state is match.state and other.orphan is match.orphan
    return same and all(a >= b for a, b in zip(other.unsent, match.unsent, strict=True))


def _give(match: LaneMatch) -> None:
    state, orphan = match.state, match.orphan
    client = _client(state, orphan.connection)
    server = orphan.connection.other(client)
    orphan.connection.client = client
    if state.awaits_channel:
        state.imply_channel(BASIC)
    starts = (orphan.start, server.origin if server.start_known else None)
    state.attach_lane(BASIC, 0, (client, server), starts)
    for direction in range(2):
        state.end_lane(BASIC, direction, match.unsent[direction])


def _client(state: PipeState, connection: Connection) -> Stream:
    """The stream that would be the client's: it goes to where the pipe's server listens."""
    ends = state.pipe.client.host, state.pipe.server
    return next(one for one in connection.streams if (one.flow.source.host, one.flow.destination) == ends)


def _matches(state: PipeState, orphan: LaneCandidate) -> Iterator[LaneMatch]:
    """Every possible answer for a pipe and a connection."""
    client = _client(state, orphan.connection)
    if orphan.connection.client not in (None, client):
        return
    streams = (client, orphan.connection.other(client))
    ends = [list(_ends(state, direction, streams[direction])) for direction in range(2)]
    for unsent_c, seen_c, distances_c in ends[0]:
        for unsent_s, seen_s, distances_s in ends[1]:
            distances = distances_c + distances_s
            if seen_c is not None or seen_s is not None:
                seen = seen_c is not False and seen_s is not False
                yield LaneMatch(
                    state, orphan, (unsent_c, unsent_s), _mean(distances), _usual(distances), seen
                )


def _ends(state: PipeState, direction: int, stream: Stream) -> Iterator[tuple[int, bool | None, Distances]]:
    """(tensors not sent, whether a length confirms it, distances in time) of each way that a direction may
    end; None: nothing is due.
    """
    due, complete = state.due(direction)
    if not due:
        yield 0, None, []
        return
    if stream.end is None:
        return
    certain = complete and ended_well(stream)
    for unsent in range(1 if certain else min(MAX_UNSENT, len(due) - 1) + 1):
        sent = due[: len(due) - unsent]
        confirmed = fits(stream, stream.end, [d.length for d in sent])
        begin = stream.end - sum(d.length + HEADER_BYTES for d in sent)
        hidden = confirmed == 0 and stream.origin is not None and begin >= stream.origin
        if confirmed > 0 or hidden:
            yield unsent, confirmed > 0, list(_distances(stream, sent))


def _distances(stream: Stream, sent: Sequence[DueFrame]) -> Iterator[tuple[TpMessage, int]]:
    first, end = stream.kept_from, stream.end
    assert end is not None
    position = end - sum(d.length + HEADER_BYTES for d in sent)
    for d in sent:
        stop = position + HEADER_BYTES + d.length
        if d.message is not None and first is not None and position >= first:
            start_ns, _, capture, _, _, _ = stream.stamp(position, stop)
            if capture >= 0:
                yield d.message, min(abs(start_ns - d.message.first_ns), FAR_NS)
        position = stop


def _mean(distances: Distances) -> float:
    return sum(ns for _, ns in distances) / len(distances) if distances else 0.0


def _usual(distances: Distances) -> float:
    """The mean without the message that is the farthest from its tensors, unless it is the only one."""
    if not distances:
        return 0.0
    farthest = max(distances, key=itemgetter(1))[0]
    return _mean([d for d in distances if d[0] is not farthest] or distances)
