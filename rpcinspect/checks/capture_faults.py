"""What a capture could not hold, lost or doubled: `invisible-transport`, `capture-gap`, `truncated-packets`,
`conflicting-overlap`; and `no-rpc` where nothing of RPC is in it, and no other finding says why.

In: what the wire stages know, and the rows of messages of which bytes are missing. Out: findings; those of a
capture without messages say what it has instead, and how to capture what is missing.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

from rpcinspect.checks.check import MAX_INDEXES, Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.failed_init import RETRIES, failed_inits, outcome
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, Session
from rpcinspect.session.provenance import MessageKind
from rpcinspect.session.words import amount, counted, several, unique
from rpcinspect.tensorpipe.records import Visibility

TO_SEE_EVERYTHING = (
    'run the job with TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"]) and capture again'
)
CAPTURE_RIGHT = (
    "Capture on the interface that the workers talk over (lo on one machine, tcpdump -i any on several), "
    "from before init_rpc on."
)
SAME_STORE = "Check that all workers have the same MASTER_ADDR and MASTER_PORT (init_method)."
RECORD_AGAIN = "Record the job again, and check that it calls init_rpc."

MAX_WAYS = 4
"""Of dropped messages that one finding names."""


class CaptureFaults(Check):
    """Finds what the capture could not see or hold: bytes that it lost, or cut off, or has in two copies that
    differ, and the messages that lack them; pipes and tensors that travel outside of the network."""

    def __init__(self) -> None:
        self._truncated = array("q")
        """Rows with payload bytes missing."""
        self._tensors_missing = array("q")
        """Rows with tensor bytes that the capture should have had."""

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        tp = record.tp
        if tp.payload_missing is not None:
            self._truncated.append(record.row)
        if tp.tensors and not tp.pipe.invisible_channels:
            for one in tp.tensors:
                if (one.extent is None or one.extent.missing) and one.missing_bytes:
                    self._tensors_missing.append(record.row)
                    break
        return bool(tp.descriptor.tensors)

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        session, wire = evidence.session, evidence.wire
        truncated, missing = len(self._truncated), len(self._tensors_missing)
        incomplete = _incomplete(truncated, missing)
        rows = sorted({*self._truncated, *self._tensors_missing})
        messages = session.indexes(rows[:MAX_INDEXES])
        rows = [int(session.order[index]) for index in messages]
        workers = unique(end for row in rows for end in (session.source(row), session.destination(row)))
        yield from invisible_transport(session)
        yield from _losses(evidence, incomplete, messages, workers)
        yield from _conflicting_overlap(session, wire)


def invisible_transport(session: Session) -> Iterable[Finding]:
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
            text=f"{count:,} of {counted(len(session.pipes), 'pipe')}: {reason}.",
            remedy=f"To see everything, {TO_SEE_EVERYTHING}.",
            workers=tuple(workers[reason]),
        )
    if nothing and not session.pipes and any(_published_elsewhere(session)):
        addresses = ", ".join(_published_elsewhere(session))
        yield Finding(
            code="invisible-transport",
            severity="error",
            text=f"Workers listen at {addresses}: their pipes don't use TCP.",
            remedy=f"To see everything, {TO_SEE_EVERYTHING}.",
            workers=tuple(w.name for w in session.workers if w.name is not None),
        )


def _published_elsewhere(session: Session) -> list[str]:
    return [address for worker in session.workers for address in worker.elsewhere]


def _incomplete(truncated: int, missing: int) -> str:
    """Returns a clause about what the lost bytes belong to."""
    told = [counted(truncated, "message")] if truncated else []
    told += [f"the tensors of {counted(missing, 'message')}"] if missing else []
    if not told:
        return "all messages found are complete"
    return f"{' and '.join(told)} {'is' if (truncated, missing) == (1, 0) else 'are'} incomplete"


def _losses(
    evidence: CaptureEvidence, incomplete: str, messages: tuple[int, ...], workers: tuple[str, ...]
) -> Iterator[Finding]:
    """Bytes that the capture lost, messages that are in no log, packets that the snap length cut; or the end
    of the file, where that is damaged."""
    wire = evidence.wire
    cutter = "The snap length of the capture"
    if any(problem.layer == "capture" for problem in evidence.session.problems):
        cutter += ", or the end of a damaged file,"
    if wire.holes:
        total = sum(lost for _, _, lost in wire.holes)
        holes = sum(number for _, number, _ in wire.holes)
        worst = max(wire.holes, key=lambda item: item[2])
        yield Finding(
            code="capture-gap",
            severity="warning",
            text=f"{counted(total, 'byte')} in {counted(holes, 'gap')} of "
            f"{counted(len(wire.holes), 'stream')} {'was' if total == 1 else 'were'} not captured "
            f"(most in {worst[0]}: {worst[2]:,}); {incomplete}.",
            remedy="Capture with a larger kernel buffer (tcpdump -B 262144), "
            "on the interface of the RPC traffic only.",
            messages=messages,
            workers=workers,
        )
    if wire.dropped:
        dropped = unique([f"{sender} → {receiver}" for sender, receiver in wire.dropped])
        ways, more = ", ".join(dropped[:MAX_WAYS]), len(dropped) - MAX_WAYS
        yield Finding(
            code="capture-gap",
            severity="warning",
            text=f"The log says that messages are missing in it: {ways}"
            f"{f' and {more:,} more' if more > 0 else ''}.",
            remedy="Its writer could not keep up or found no more room, or its source had gaps.",
            workers=unique(end for way in wire.dropped for end in way),
        )
    if wire.cut_bytes:
        yield Finding(
            code="truncated-packets",
            severity="warning",
            text=f"{cutter} cut off {counted(wire.cut_bytes, 'byte')}; {incomplete}.",
            remedy="Capture whole packets (tcpdump -s 0).",
            messages=messages,
            workers=workers,
        )


def _conflicting_overlap(session: Session, wire: WireFacts) -> Iterable[Finding]:
    """Stream bytes that were captured twice and differ."""
    ends: dict[str, tuple[str, ...]] = {}
    for pipe in session.pipes:
        client, server = session.clients[pipe.number], session.servers[pipe.number]
        ends[str(pipe.flow)] = unique([client, server])
        ends[str(pipe.flow.reversed)] = unique([server, client])
    for flow, offset, conflict in wire.conflicts:
        yield Finding(
            code="conflicting-overlap",
            severity="warning",
            text=f"Two copies of {counted(conflict.length, 'byte')} of {flow} from offset {offset:,} differ; "
            f"the first was kept, the one in packet {conflict.packet} dropped.",
            remedy="Look at both packets: a middlebox, a broken card or an attack rewrites the stream.",
            workers=ends.get(flow, ()),
        )


class NoRpc(Check):
    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        if (
            evidence.session.totals.messages
            or any(invisible_transport(evidence.session))
            or any(failed_inits(evidence))
        ):
            return
        refused = _refused(evidence)
        remedy = RECORD_AGAIN if evidence.session.logged else CAPTURE_RIGHT
        if refused:
            remedy = f"{SAME_STORE} If they do: {remedy}"
        yield Finding(
            code="no-rpc",
            severity="error",
            text=f"No RPC messages: {_instead(evidence)}{refused}.",
            remedy=remedy,
        )


def _refused(evidence: CaptureEvidence) -> str:
    """Returns words on addresses that refused connections again and again, where the capture has a store that
    may have been meant; else nothing."""
    tried = [one for one in evidence.wire.refusals if one.count >= RETRIES] if evidence.wire.stores else []
    told = [f"{counted(one.count, 'connection')} to {one.server}" for one in tried]
    if not told:
        return ""
    return f"; the store is at {several(sorted(evidence.wire.stores))}, and {several(told)} {outcome(tried)}"


def _instead(evidence: CaptureEvidence) -> str:
    """Returns a clause about what the capture has instead of messages."""
    session, totals = evidence.session, evidence.session.totals
    if session.logged:
        return "the log holds none that is whole"
    if not sum(capture.packets for capture in session.captures):
        return "the capture holds no packets"
    if session.pipes:
        return "pipes between workers were opened, but no message was sent or captured on them"
    if evidence.wire.visits:
        return (
            "the workers met at the TCPStore, but no pipe between them was captured. Either they never "
            "opened one, since init_rpc failed, or it is on another interface, or the capture had ended"
        )
    if totals.store_bytes:
        return "processes met at a TCPStore, but no init_rpc traffic was captured there"
    if totals.skipped_bytes:
        return (
            f"the capture's TCP payload ({amount(totals.skipped_bytes)}) is neither TensorPipe nor a TCPStore"
        )
    return "the capture holds no TCP payload"
