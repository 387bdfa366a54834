"""What a capture could not hold, lost or doubled: `invisible-transport`, `capture-gap`, `truncated-packets`,
`conflicting-overlap`.

Most of it is known to the wire stages; here are kept the rows of messages of which bytes are missing.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable

from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, Session
from rpcinspect.trace.notes import Note
from rpcinspect.trace.run import Run
from rpcinspect.trace.stage import MAX_INDEXES, Stage
from rpcinspect.trace.wire_facts import WireFacts
from rpcinspect.wire.records import Visibility

TO_SEE_EVERYTHING = (
    'run the job with TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"]) and capture again'
)


class CaptureFaults(Stage):
    """See the module's text."""

    def __init__(self) -> None:
        self._truncated = array("q")
        """Rows with payload bytes missing."""
        self._tensors_missing = array("q")
        """Rows with tensor bytes that the capture should have had."""

    def feed(self, record: RpcRecord, note: Note) -> None:
        tp = record.tp
        if tp.payload_missing is not None:
            self._truncated.append(note.row)
        if tp.tensors and not tp.pipe.invisible_channels:
            for tensor in tp.tensors:
                extent = tensor.extent
                if (extent is None or extent.missing) and tensor.missing_bytes:
                    self._tensors_missing.append(note.row)
                    return

    def finish(self, run: Run) -> Iterable[Finding]:
        session, wire = run.session, run.wire
        truncated, missing = len(self._truncated), len(self._tensors_missing)
        incomplete = f"{truncated:,} messages and the tensors of {missing:,} are incomplete"
        rows = sorted({*self._truncated, *self._tensors_missing})
        messages = session.indexes(rows[:MAX_INDEXES])
        yield from _invisible_transport(session)
        yield from _capture_gap(wire, incomplete, messages)
        yield from _truncated_packets(wire, incomplete, messages)
        yield from _conflicting_overlap(wire)


def _invisible_transport(session: Session) -> Iterable[Finding]:
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


def _capture_gap(wire: WireFacts, incomplete: str, messages: tuple[int, ...]) -> Iterable[Finding]:
    """Bytes that the capture lost."""
    if not wire.holes:
        return
    total = sum(lost for _, _, lost in wire.holes)
    holes = sum(number for _, number, _ in wire.holes)
    worst = max(wire.holes, key=lambda item: item[2])
    yield Finding(
        code="capture-gap",
        severity="warning",
        text=f"{total:,} bytes in {holes:,} gaps of {len(wire.holes)} streams were not captured "
        f"(most in {worst[0]}: {worst[2]:,}); {incomplete}.",
        remedy="Capture with a larger kernel buffer (tcpdump -B 262144), "
        "on the interface of the RPC traffic only.",
        messages=messages,
    )


def _truncated_packets(wire: WireFacts, incomplete: str, messages: tuple[int, ...]) -> Iterable[Finding]:
    """Packets that the snap length cut."""
    if not wire.cut_bytes:
        return
    yield Finding(
        code="truncated-packets",
        severity="warning",
        text=f"The snap length of the capture cut off {wire.cut_bytes:,} bytes; {incomplete}.",
        remedy="Capture whole packets (tcpdump -s 0).",
        messages=messages,
    )


def _conflicting_overlap(wire: WireFacts) -> Iterable[Finding]:
    """Stream bytes that were captured twice and differ."""
    for flow, offset, conflict in wire.conflicts:
        yield Finding(
            code="conflicting-overlap",
            severity="warning",
            text=f"Two copies of {conflict.length:,} bytes of {flow} from offset {offset:,} differ; "
            f"the first was kept, the one in packet {conflict.packet} dropped.",
            remedy="Look at both packets: a middlebox, a broken card or an attack rewrites the stream.",
        )
