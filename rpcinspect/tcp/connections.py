"""TCP segments → ordered streams: reordering, copies, sequence wrap, port reuse, holes, several files.

In: `SegmentBlock`s, one file after the other. Out: for each block the streams that grew. A connection is
known by its two endpoints and its initial sequence numbers; seen in two files it is still one, and a hole in
the first file is filled from the second. Checksums are never looked at: offload makes most of them wrong.

A hole is settled when nothing can fill it any more: at the end, or, with `patience_ns`, when the other
side has acknowledged the missing bytes and that much capture time has gone by.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s, SegmentBlock
from rpcinspect.problems import Location, Problem
from rpcinspect.tcp.ranges import CaptureBytes, SegmentRun
from rpcinspect.tcp.segment import ACK, FIN, RST, SYN, Flow
from rpcinspect.tcp.stream import EPOCH, WRAP, Connection, Stream, unwrap
from rpcinspect.unexpected import unexpected


class _Pair(Struct, eq=False):
    """Two endpoints: their connections, and from which packet of which file on each is the current one."""

    connections: list[Connection] = field(default_factory=list)
    by_isn: dict[int, Connection] = field(default_factory=dict)
    """The latest connection of each initial sequence number of a client."""
    headless: list[Connection] = field(default_factory=list)
    """Connections whose beginning was not captured."""
    switches: list[tuple[int, int, Connection]] = field(default_factory=list)
    """(capture, packet, connection) in the order of capture."""


class Tcp:
    """The stage: `feed` blocks, then `finish`."""

    def __init__(self, source: CaptureBytes, flows: list[Flow], patience_ns: int | None = None) -> None:
        """`flows` is the segmenter's growing table; without patience, missing bytes are awaited until the
        end.
        """
        self.connections: list[Connection] = []
        self.problems: list[Problem] = []
        self._source = source
        self._flows = flows
        self._patience_ns = patience_ns
        self._pair_of: list[_Pair] = []
        self._pairs: dict[tuple[str, int, str, int], _Pair] = {}
        self._waiting: dict[int, Stream] = {}
        """Streams with an unsettled start or a gap, by id()."""

    def feed(self, block: SegmentBlock) -> list[Stream]:
        """The streams that grew by this block, in order of their first segment in it."""
        if not len(block):
            return []
        self._source.show(block)
        self._enrol()
        reused = self._open_connections(block)
        grown: dict[int, Stream] = {}
        few = len(self._flows) <= 1 << 16  # numbers of 16 bits are sorted eight times as fast
        order = np.argsort(block.flow.astype(np.uint16) if few else block.flow, kind="stable")
        flows = block.flow[order]
        edges = np.flatnonzero(np.diff(flows)) + 1
        for rows in np.split(order, edges):
            try:
                for stream, part in self._split(block, rows):
                    if self._take(block, stream, part):
                        grown[id(stream)] = stream
            except Exception as error:
                where = Location(
                    capture=block.capture,
                    packet=int(block.packet[rows[0]]),
                    flow=str(self._flows[int(block.flow[rows[0]])]),
                )
                self.problems.append(unexpected(error, "tcp", where))
        for pair in reused:  # of this file, only the last can matter for the blocks to come
            last = pair.switches[-1]
            pair.switches = [s for s in pair.switches if s[0] != block.capture]
            pair.switches.append((block.capture, 0, last[2]))
        if self._patience_ns is not None and self._waiting:
            for stream in self._settle(int(block.time_ns[-1])):
                grown[id(stream)] = stream
        return list(grown.values())

    def finish(self) -> Iterator[Stream]:
        """Settles every stream: each one that was not finished before, when it is."""
        for connection in self.connections:
            for stream in connection.streams:
                if not stream.finished:
                    try:
                        stream.finish()
                    except Exception as error:
                        self.problems.append(unexpected(error, "tcp", Location(flow=str(stream.flow))))
                    yield stream

    # -- which connection a segment belongs to -----------------------------------------------------------

    def _enrol(self) -> None:
        for flow in self._flows[len(self._pair_of) :]:
            ends = sorted(
                ((flow.source.host, flow.source.port), (flow.destination.host, flow.destination.port))
            )
            key = (*ends[0], *ends[1])
            pair = self._pairs.get(key)
            if pair is None:
                pair = self._pairs[key] = _Pair()
            self._pair_of.append(pair)

    def _connect(self, flow: Flow, client: bool | None, isn: int | None, other_isn: int | None) -> Connection:
        """A new connection, seen first in `flow`, whose sender is the client, or not, or unknown."""
        connection = Connection(len(self.connections), flow, self._source, isn, other_isn)
        if client is not None:
            connection.client = connection.forward if client else connection.backward
            connection.client_isn, connection.server_isn = (isn, other_isn) if client else (other_isn, isn)
        self.connections.append(connection)
        return connection

    def _open_connections(self, block: SegmentBlock) -> list[_Pair]:
        """Walks the SYNs of a block: they start connections and tell initial sequence numbers.

        Returns the pairs whose current connection changes.
        """
        changed: dict[int, _Pair] = {}
        for row in np.flatnonzero(block.flags & SYN).tolist():
            index = int(block.flow[row])
            pair, flow = self._pair_of[index], self._flows[index]
            isn, packet = int(block.sequence[row]), int(block.packet[row])
            reply = bool(block.flags[row] & ACK)
            asked = (int(block.acknowledgment[row]) - 1) % WRAP if reply else None
            client_isn = asked if reply else isn
            connection = None if client_isn is None else pair.by_isn.get(client_isn)
            if connection is None or (
                connection.client is not None and not self._fits(connection, flow, reply)
            ):
                connection = None if reply else self._crossed(pair, flow, isn)
                orphan = None if connection else self._orphan(pair, block.capture, flow, isn)
                if orphan is not None:
                    connection = orphan
                    self._adopt(pair, connection, flow, not reply, isn, asked)
                elif connection is None:
                    connection = self._connect(flow, not reply, isn, asked)
                    pair.connections.append(connection)
                if client_isn is not None:
                    pair.by_isn[client_isn] = connection
            elif reply and connection.server_isn is None:
                connection.server_isn = isn
                if connection.server is not None:
                    connection.server.begin(isn)
            now = pair.switches[-1] if pair.switches else None
            if now is None or now[2] is not connection or now[0] != block.capture:
                pair.switches.append((block.capture, packet, connection))
                changed[id(pair)] = pair
        return list(changed.values())

    @staticmethod
    def _crossed(pair: _Pair, flow: Flow, isn: int) -> Connection | None:
        """The connection that the other side opened, too, before it saw this SYN: both are clients then."""
        connection = pair.connections[-1] if pair.connections else None
        if connection is None or connection.server is None or connection.server.flow != flow:
            return None
        if connection.server_isn is None and connection.server.first_ns is None:
            connection.server_isn = isn
            connection.server.begin(isn)
        return connection if connection.server_isn == isn else None

    def _orphan(self, pair: _Pair, capture: int, flow: Flow, isn: int) -> Connection | None:
        """The connection that an earlier file shows from its middle on, if this initial sequence number lies
        not far before. In one and the same file, a SYN after data means that a port was used again.
        """
        for connection in reversed(pair.headless):
            if connection.client is not None:
                continue
            if any(seen == capture and which is connection for seen, _, which in pair.switches):
                continue
            stream = self._stream(connection, flow)
            at = _somewhere(stream)
            if stream.end is None and at is not None and 0 <= at - unwrap(at, isn + 1) < 1 << 30:
                return connection
        return None

    def _adopt(
        self, pair: _Pair, connection: Connection, flow: Flow, client: bool, isn: int, other_isn: int | None
    ) -> None:
        """Gives a connection without a beginning its beginning."""
        speaker = self._stream(connection, flow)
        other = connection.other(speaker)
        pair.headless.remove(connection)
        connection.client = speaker if client else other
        connection.client_isn, connection.server_isn = (isn, other_isn) if client else (other_isn, isn)
        speaker.begin(isn)
        if other_isn is not None:
            other.begin(other_isn)

    @staticmethod
    def _fits(connection: Connection, flow: Flow, reply: bool) -> bool:
        speaker = connection.server if reply else connection.client
        return speaker is not None and speaker.flow == flow

    def _split(self, block: SegmentBlock, rows: Int64s) -> Iterator[tuple[Stream, Int64s]]:
        """Cuts the rows of one flow where the port was used again."""
        index = int(block.flow[rows[0]])
        pair, flow = self._pair_of[index], self._flows[index]
        switches = [s for s in pair.switches if s[0] == block.capture]
        packets = block.packet[rows]
        begin = 0
        current: Connection | None = None
        for _, packet, connection in switches:
            cut = int(np.searchsorted(packets, packet))
            if cut > begin:
                current = current or self._nearest(block, pair, flow, int(rows[begin]))
                yield self._stream(current, flow), rows[begin:cut]
                begin = cut
            current = connection
        if begin < len(rows):
            if current is None:
                current = self._nearest(block, pair, flow, int(rows[begin]))
                pair.switches.append((block.capture, int(packets[begin]), current))
            yield self._stream(current, flow), rows[begin:]

    def _nearest(self, block: SegmentBlock, pair: _Pair, flow: Flow, row: int) -> Connection:
        """The known connection whose sequence numbers are near, else a new one that starts mid-stream."""
        sequence = int(block.sequence[row])
        best: tuple[int, Connection] | None = None
        anywhere: Connection | None = None
        for connection in reversed(pair.connections):
            at = _somewhere(self._stream(connection, flow))
            if at is None:
                anywhere = anywhere or connection
                continue
            distance = abs(unwrap(at, sequence) - at)
            if best is None or distance < best[0]:
                best = (distance, connection)
        if best is not None and best[0] < 1 << 30:
            return best[1]
        if anywhere is not None:
            return anywhere
        connection = self._connect(flow, None, None, None)
        pair.connections.append(connection)
        pair.headless.append(connection)
        return connection

    @staticmethod
    def _stream(connection: Connection, flow: Flow) -> Stream:
        return connection.forward if connection.forward.flow == flow else connection.backward

    # -- one stream's segments of one block --------------------------------------------------------------

    def _take(self, block: SegmentBlock, stream: Stream, rows: Int64s) -> bool:
        """Hands the rows to their stream as runs; True if its settled end moved."""
        before = stream.end
        flags = block.flags[rows]
        times = block.time_ns[rows]
        if stream.first_ns is None:
            stream.first_ns = int(times[0])
        stream.last_ns = max(stream.last_ns, int(times[-1]))
        starts = self._positions(stream, block.sequence[rows] + ((flags & SYN) != 0))
        captured, length = block.captured[rows], block.length[rows]
        self._note_control(block, stream, rows, flags, starts + length)
        data = np.flatnonzero(length > 0)
        if len(data):
            self._offer(block, stream, rows[data], starts[data], captured[data], length[data])
        if stream.waiting:
            self._waiting.setdefault(id(stream), stream)
            if stream.hole_since_ns is None:
                stream.hole_since_ns = int(times[-1])
        elif stream.hole_since_ns is not None:
            stream.hole_since_ns = None
            self._waiting.pop(id(stream), None)
        return stream.end != before and stream.end is not None

    def _positions(self, stream: Stream, sequences: Int64s) -> Int64s:
        """Unwraps sequence numbers next to what is known of the stream."""
        near = _somewhere(stream)
        if near is None:
            near = EPOCH + int(sequences[0])
        return near + ((sequences - near + WRAP // 2) % WRAP) - WRAP // 2

    def _note_control(
        self, block: SegmentBlock, stream: Stream, rows: Int64s, flags: NDArray[np.uint8], ends: Int64s
    ) -> None:
        """FIN, RST and how far the other direction has been acknowledged."""
        fins = np.flatnonzero(flags & FIN)
        if len(fins) and stream.fin is None:
            stream.fin = int(ends[fins[0]])
            stream.fin_ns = int(block.time_ns[rows[fins[0]]])
        connection = stream.connection
        if connection.reset_ns is None:
            resets = np.flatnonzero(flags & RST)
            if len(resets):
                connection.reset_ns = int(block.time_ns[rows[resets[0]]])
                connection.reset_by = stream
        acks = rows[(flags & (ACK | RST)) == ACK]
        if len(acks):
            other = connection.other(stream)
            if other.end is None and stream is connection.client and connection.client_isn is not None:
                # The acknowledgment that ends the handshake tells the other side's first position.
                first = acks[block.sequence[acks] == (connection.client_isn + 1) % WRAP]
                if len(first) and not block.length[first[0]]:
                    other.begin((int(block.acknowledgment[first[0]]) - 1) % WRAP)
            at = other.acked if other.acked is not None else other.end
            numbers = block.acknowledgment[acks]
            near = EPOCH + int(numbers[0]) if at is None else at
            acked = int((near + ((numbers - near + WRAP // 2) % WRAP) - WRAP // 2).max())
            if other.acked is None or acked > other.acked:
                other.acked = acked

    def _offer(
        self,
        block: SegmentBlock,
        stream: Stream,
        rows: Int64s,
        starts: Int64s,
        captured: Int64s,
        length: Int64s,
    ) -> None:
        """Cuts the data segments into runs without a gap and offers each one."""
        ends = starts + captured
        sent = [stream.sent[1]] if stream.sent is not None and stream.sent[0] == block.capture else []
        stream.sent = block.capture, max([*sent, int((starts + length).max())])
        if np.any(length == 1):
            known = sent if stream.end is None else [*sent, stream.end]
            keep = ~_keep_alive_probes(max(known, default=None), starts, starts + length)
            rows, starts, captured, length, ends = (a[keep] for a in (rows, starts, captured, length, ends))
            if not len(rows):
                return
        cut = bool(np.any(captured != length))
        offsets, packets, times = block.offset[rows], block.packet[rows], block.time_ns[rows]
        # IP fragments that came out of order lie in the file in another order than in the stream
        breaks = np.flatnonzero((starts[1:] != ends[:-1]) | (offsets[1:] < offsets[:-1])) + 1
        edges = [0, *breaks.tolist(), len(rows)]
        for low, high in pairwise(edges):
            start, end = int(starts[low]), int(ends[high - 1])
            if end > start:
                part = slice(low, high)
                columns = starts[part], offsets[part], packets[part], times[part]
                stream.offer(SegmentRun(start, end, block.capture, *columns))
            if cut and length[high - 1] > captured[high - 1]:
                lost = int(length[high - 1] - captured[high - 1])
                stream.cut_bytes += lost
                if self._patience_ns is not None:  # no other file can fill it
                    stream.offer(SegmentRun(end, end + lost))

    def _settle(self, now_ns: int) -> Iterator[Stream]:
        """Gives up on what has been missing for longer than the patience."""
        assert self._patience_ns is not None
        for key, stream in list(self._waiting.items()):
            since = stream.hole_since_ns
            if since is None or now_ns - since < self._patience_ns:
                continue
            before = stream.end
            if stream.end is None:
                stream.settle_start()
            else:
                behind = stream.pending_start
                if behind is None or stream.acked is None or stream.acked < behind:
                    continue
                stream.settle_hole()
            if not stream.waiting:
                stream.hole_since_ns = None
                del self._waiting[key]
            if stream.end != before:
                yield stream


def _keep_alive_probes(end: int | None, starts: Int64s, ends: Int64s) -> NDArray[np.bool_]:
    """Returns which segments are the one byte before the end of all that was sent so far, cut off or not:
    such a byte is no data."""
    before = np.concatenate(([starts[0] if end is None else end], ends[:-1]))
    probes: NDArray[np.bool_] = (ends - starts == 1) & (ends == np.maximum.accumulate(before))
    return probes


def _somewhere(stream: Stream) -> int | None:
    """A position of the stream that is known for some reason; None if there is none."""
    for at in (stream.end, stream.pending_start, stream.acked, stream.fin):
        if at is not None:
            return at
    return None
