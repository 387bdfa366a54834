"""What is worth knowing before any message is read: what the capture could not hold, lost or doubled, and
what is unsafe.

In: a session, its builder's notes and what the TCP stage saw. Out: `Finding`s with the contract's codes and
severities, each with one sentence for the cause and one for the remedy. A table at the foot lists the checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from rpcinspect.session.builder import SessionBuilder
from rpcinspect.session.model import Finding, Session
from rpcinspect.wire.records import Visibility
from rpcinspect.wire.stream import Conflict, Stream
from rpcinspect.wire.tcp import Connection

TO_SEE_EVERYTHING = (
    'run the job with TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"]) and capture again'
)
MAX_INDEXES = 1000


@dataclass(frozen=True, slots=True)
class WireFacts:
    """What the TCP stage noted, without its streams."""

    holes: tuple[tuple[str, int, int], ...]
    """(flow, number of holes, bytes) for each stream of ours with any."""
    cut_bytes: int
    conflicts: tuple[tuple[str, int, Conflict], ...]
    """(flow, offset in the stream, conflict)."""

    @classmethod
    def of(cls, connections: Iterable[Connection]) -> WireFacts:
        """Sums over every stream."""
        holes: list[tuple[str, int, int]] = []
        conflicts: list[tuple[str, int, Conflict]] = []
        cut = 0
        for connection in connections:
            for stream in connection.streams:
                cut += stream.cut_bytes
                lost = _lost_bytes(stream)
                if lost:
                    holes.append((str(stream.flow), len(stream.holes), lost))
                conflicts += [(str(stream.flow), stream.offset(c.position), c) for c in stream.conflicts]
        return cls(tuple(holes), cut, tuple(conflicts))


def _lost_bytes(stream: Stream) -> int:
    return max(0, sum(b - a for a, b in stream.holes) - stream.cut_bytes)


def find(session: Session, builder: SessionBuilder, wire: WireFacts) -> tuple[Finding, ...]:
    """Every finding, in the order of the table."""
    return tuple(finding for check in CHECKS for finding in check(session, builder, wire))


def _invisible_transport(session: Session, builder: SessionBuilder, wire: WireFacts) -> Iterable[Finding]:
    """Pipes whose messages or tensors are moved outside the network."""
    nothing = session.totals.messages == 0
    reasons: Counter[str] = Counter()
    workers: dict[str, dict[str, None]] = {}
    for pipe in session.pipes:
        hidden = pipe.visible in (Visibility.HANDSHAKE_ONLY, Visibility.NO_TENSORS) or pipe.invisible_channels
        if hidden:
            names = ", ".join(sorted(pipe.invisible_channels))
            reason = (
                pipe.reason or f"tensors are moved by the channel {names}, which a capture of TCP can't hold"
            )
            reasons[reason] += 1
            ends = workers.setdefault(reason, {})
            ends.setdefault(session.clients[pipe.number])
            ends.setdefault(session.servers[pipe.number])
    for reason, count in reasons.items():
        yield Finding(
            code="invisible-transport",
            severity="error" if nothing else "info",
            text=f"{count} of {len(session.pipes)} pipes: {reason}.",
            remedy=f"To see everything, {TO_SEE_EVERYTHING}.",
            workers=tuple(workers[reason]),
        )
    if nothing and not session.pipes and any(_published_elsewhere(session)):
        addresses = ", ".join(_published_elsewhere(session))
        yield Finding(
            code="invisible-transport",
            severity="error",
            text=f"Workers listen at {addresses}: their pipes are not opened over TCP.",
            remedy=f"To see everything, {TO_SEE_EVERYTHING}.",
            workers=tuple(w.name for w in session.workers if w.name is not None),
        )


def _published_elsewhere(session: Session) -> list[str]:
    return [address for worker in session.workers for address in worker.elsewhere]


def _capture_gap(session: Session, builder: SessionBuilder, wire: WireFacts) -> Iterable[Finding]:
    """Bytes that the capture lost."""
    if not wire.holes:
        return
    total = sum(lost for _, _, lost in wire.holes)
    holes = sum(number for _, number, _ in wire.holes)
    worst = max(wire.holes, key=lambda item: item[2])
    rows = sorted({*builder.truncated, *builder.tensors_missing})
    yield Finding(
        code="capture-gap",
        severity="warning",
        text=f"{total:,} bytes in {holes:,} gaps of {len(wire.holes)} streams were not captured "
        f"(most in {worst[0]}: {worst[2]:,}); {len(builder.truncated)} messages and the tensors of "
        f"{len(builder.tensors_missing)} are incomplete.",
        remedy="Capture with a larger kernel buffer (tcpdump -B 262144), "
        "on the interface of the RPC traffic only.",
        messages=session.indexes(rows[:MAX_INDEXES]),
    )


def _truncated_packets(session: Session, builder: SessionBuilder, wire: WireFacts) -> Iterable[Finding]:
    """Packets that the snap length cut."""
    if not wire.cut_bytes:
        return
    rows = sorted({*builder.truncated, *builder.tensors_missing})
    yield Finding(
        code="truncated-packets",
        severity="warning",
        text=f"The snap length of the capture cut off {wire.cut_bytes:,} bytes; {len(builder.truncated)} "
        f"messages and the tensors of {len(builder.tensors_missing)} are incomplete.",
        remedy="Capture whole packets (tcpdump -s 0).",
        messages=session.indexes(rows[:MAX_INDEXES]),
    )


def _conflicting_overlap(session: Session, builder: SessionBuilder, wire: WireFacts) -> Iterable[Finding]:
    """Stream bytes that were captured twice and differ."""
    for flow, offset, conflict in wire.conflicts:
        yield Finding(
            code="conflicting-overlap",
            severity="warning",
            text=f"Two copies of {conflict.length:,} bytes of {flow} from offset {offset:,} differ; "
            f"the first was kept, the one in packet {conflict.packet} dropped.",
            remedy="Look at both packets: a middlebox, a broken card or an attack rewrites the stream.",
        )


def _unsafe_pickle(session: Session, builder: SessionBuilder, wire: WireFacts) -> Iterable[Finding]:
    """Pickles that would do more than make data when loaded."""
    control = np.frombuffer(builder.columns.control, dtype=np.int8)
    for (severity, name, reason), rows in sorted(builder.suspicions.items()):
        user_rows = sorted((row for row in rows if not control[row]), key=lambda row: int(session.index[row]))
        if not user_rows:
            continue
        workers = dict.fromkeys(session.destination(row) for row in user_rows)
        yield Finding(
            code="unsafe-pickle",
            severity=severity,
            text=f"{name}: {reason}.",
            remedy="Nothing was loaded here. Do not replay the message unless you trust the capture.",
            messages=session.indexes(user_rows[:MAX_INDEXES]),
            workers=tuple(workers),
        )


Check = Callable[[Session, SessionBuilder, WireFacts], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    _invisible_transport,
    _capture_gap,
    _truncated_packets,
    _conflicting_overlap,
    _unsafe_pickle,
)
