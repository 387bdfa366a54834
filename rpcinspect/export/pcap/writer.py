"""A session, or some of its messages → a pcap that decodes by itself.

In: a session, its records in the order of time, a reader of their tensors' bytes, and which messages to keep.
Out: the bytes of a pcap with times in nanoseconds: for each job a conversation with a store that names all of
its workers, for each pipe with a message that is kept its connections with a complete handshake, at the
captured ends where those are known. Decoding it gives the same messages (what they say, ids, tensors, times
to the nanosecond), of the same workers, in the same order; bytes that were not captured are missing again.

What it does not hold: packets as they were captured, other protocols, pipes without a message, the channel by
which tensors travelled (all are on `basic`), that unknown messages were lost in between, and a doubt to which
tensor bytes belong (they are left out).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import IO, TypeAlias

from rpcinspect.capture.pcap import pcap_header, pcap_record
from rpcinspect.equality.elements import ReadExtent
from rpcinspect.export.pcap.flows import CLIENT, CLOSING, OPENING, SAYING, SERVER, Piece, Ports, Talk
from rpcinspect.export.pcap.pipes import Numbered, pipe_talks
from rpcinspect.export.pcap.places import endpoint, placed
from rpcinspect.export.pcap.stores import store_talk
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.tcp.packetize import LINK_TYPE, Packetizer
from rpcinspect.tcp.ranges import ranges_beside
from rpcinspect.tcp.segment import Endpoint


def write_session(
    output: IO[bytes],
    session: Session,
    records: Sequence[RpcRecord],
    read: ReadExtent,
    keep: Collection[int] | None = None,
) -> int:
    """Writes the messages whose indexes are in `keep`, or all; returns how many. `records`: those of the
    whole session in the order of time, as `Run.messages` gives them."""
    chosen = set(range(len(records)) if keep is None else keep)
    kept = [Numbered(index, record) for index, record in enumerate(records) if index in chosen]
    write_messages(output, session, kept, read)
    return len(kept)


def write_messages(output: IO[bytes], session: Session, kept: Sequence[Numbered], read: ReadExtent) -> None:
    """Writes these messages of a session, in the order of their indexes, as a pcap."""
    session = placed(session)
    output.write(pcap_header(LINK_TYPE))
    for time_ns, packet in _packets(_talks(session, kept), read):
        output.write(pcap_record(time_ns, packet))


def _talks(session: Session, kept: Sequence[Numbered]) -> list[Talk]:
    ports = Ports(_known_ends(session))
    first_ns = min((message.record.tp.first_ns for message in kept), default=_begin(session))
    talks = list(_stores(session, first_ns, ports))
    of_pipe: dict[int, list[Numbered]] = defaultdict(list)
    for message in kept:
        of_pipe[message.record.tp.pipe.number].append(message)
    for count, (number, messages) in enumerate(sorted(of_pipe.items())):
        pipe = session.pipes[number]
        its = pipe_talks(pipe, _client_name(session, number), messages, 2 * count, ports)
        if pipe.ended_ns is not None:  # whoever listens there later is somebody else
            for talk in its:
                talk.close_ns = max(pipe.ended_ns, talk.last_ns())
        talks += its
    _close_before_reuse(talks)
    return talks


def _stores(session: Session, first_ns: int, ports: Ports) -> Iterator[Talk]:
    """One store for each job, in their order, each before the first pipe of its job."""
    jobs = sorted({worker.job for worker in session.workers})
    latest: dict[int, int] = {}
    time_ns: int | None = None
    for job in reversed(jobs):
        times = [pipe.first_ns for pipe, its in zip(session.pipes, session.jobs, strict=True) if its == job]
        own = min(times, default=first_ns)
        time_ns = latest[job] = own if time_ns is None else min(own, time_ns)
    for job in jobs:
        workers = [worker for worker in session.workers if worker.job == job]
        talk = store_talk(workers, latest[job], ports)
        if talk is not None:
            yield talk


def _begin(session: Session) -> int:
    return min((c.first_time_ns for c in session.captures if c.first_time_ns is not None), default=0)


def _known_ends(session: Session) -> set[Endpoint]:
    """Ends that are somebody's, so that none is made up that is the same."""
    found = {end for pipe in session.pipes for end in (pipe.client, pipe.server)}
    found |= {pipe.listener for pipe in session.pipes if pipe.listener is not None}
    for worker in session.workers:
        for address in worker.addresses:
            end = endpoint(address)
            if end is not None:
                found.add(end)
    return found


def _client_name(session: Session, pipe: int) -> str:
    """The name of a pipe's client; empty if only an id or an address is known."""
    name = session.pipes[pipe].client_name
    if name:
        return name
    label, job = session.clients[pipe], session.jobs[pipe]
    return label if any(w.name == label and w.job == job for w in session.workers) else ""


def _close_before_reuse(talks: Sequence[Talk]) -> None:
    """A connection ends before another one begins at the same two ends."""
    latest: dict[tuple[Endpoint, Endpoint], Talk] = {}
    for talk in sorted(talks, key=lambda talk: talk.open_ns):
        before = latest.get((talk.client, talk.server))
        if before is not None:
            before.close_ns = before.last_ns()
        latest[talk.client, talk.server] = talk


def _packets(talks: Sequence[Talk], read: ReadExtent) -> Iterator[tuple[int, bytes]]:
    """Every packet with its time, in the order of time."""
    framers = [_framer(number, talk) for number, talk in enumerate(talks)]
    for time_ns, rank, _, number, piece in _events(talks):
        frames: Iterable[bytes]
        if piece is not None:
            frames = _said(framers[number], piece, read)
        elif rank == OPENING:
            frames = framers[number].open()
        else:
            lengths = talks[number].lengths
            frames = framers[number].close(True, (lengths[CLIENT], lengths[SERVER]))
        for packet in frames:
            yield time_ns, packet


_Event: TypeAlias = tuple[int, int, int, int, Piece | None]
"""(time, rank, index, number of the talk, what is said; None: the connection opens or closes)"""


def _events(talks: Sequence[Talk]) -> list[_Event]:
    """All that happens, in its order."""
    last_ns = max((talk.last_ns() for talk in talks), default=0)
    events: list[_Event] = []
    for number, talk in enumerate(talks):
        events.append((talk.open_ns, OPENING, -2, number, None))
        events += [(piece.time_ns, piece.rank, piece.index, number, piece) for piece in talk.pieces]
        close_ns = last_ns if talk.close_ns is None else talk.close_ns
        events.append((close_ns, CLOSING, 0, number, None))
    events.sort(key=lambda event: event[:4])
    # A message may begin before another one and stand behind it on a connection: there that order counts.
    places: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for place, (time_ns, rank, _, number, piece) in enumerate(events):
        if piece is not None and rank == SAYING:
            places[time_ns, number, piece.side].append(place)
    for its in places.values():
        ordered = sorted((events[place] for place in its), key=lambda event: event[4].at if event[4] else 0)
        for place, event in zip(its, ordered, strict=True):
            events[place] = event
    return events


def _framer(number: int, talk: Talk) -> Packetizer:
    """Sequence numbers tell connections apart that have the same ends."""
    client, server = ((end.host, end.port) for end in (talk.client, talk.server))
    initial = (number * GOLDEN + 1) % 2**32
    return Packetizer(client, server, initial=(initial, initial ^ 0xFFFFFFFF))


def _said(framer: Packetizer, piece: Piece, read: ReadExtent) -> Iterator[bytes]:
    by_client = piece.side == CLIENT
    if isinstance(piece.said, bytes):
        yield from framer.data(by_client, piece.said, piece.at)
        return
    for start, stop in ranges_beside(piece.said.missing, piece.said.length):
        yield from framer.data(by_client, read(piece.said.part(start, stop)), piece.at + start)


GOLDEN = 0x9E3779B1
"""2³² divided by the golden ratio: multiples of it are far from each other."""
