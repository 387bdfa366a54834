"""Why a capture shows no messages, and what to do about it: an answer, not an error.

In: the session. Out: one or two sentences.
"""

from __future__ import annotations

from rpcinspect.session.model import Session
from rpcinspect.views.phrases import amount

CAPTURE_RIGHT = (
    "Capture on the interface that the workers talk over (lo on one machine, tcpdump -i any on several), "
    "from before init_rpc on."
)


def why_empty(session: Session) -> str | None:
    """The reason and the remedy; None where messages were found, or where findings tell it."""
    totals = session.totals
    if totals.messages or any(finding.code == "invisible-transport" for finding in session.findings):
        return None
    if session.logged:
        return "No RPC messages: the log holds none that is whole."
    packets = sum(capture.packets for capture in session.captures)
    if not packets:
        return f"No RPC messages: the capture holds no packets. {CAPTURE_RIGHT}"
    if session.pipes:
        return (
            "No RPC messages: pipes between workers were opened, but no message was sent or captured on them."
        )
    if totals.store_bytes:
        return (
            "No RPC messages: the workers met at the TCPStore, but no pipe between them was captured. Either "
            f"they never opened one, since init_rpc failed, or it is on another interface. {CAPTURE_RIGHT}"
        )
    if totals.skipped_bytes:
        return (
            f"No RPC messages: the capture's TCP payload ({amount(totals.skipped_bytes)}) is neither "
            f"TensorPipe nor a TCPStore. {CAPTURE_RIGHT}"
        )
    return f"No RPC messages: the capture holds no TCP payload. {CAPTURE_RIGHT}"


def empty_line(session: Session) -> str | None:
    """The same in one line for whoever does not see the findings."""
    if session.totals.messages:
        return None
    findings = [finding for finding in session.findings if finding.code == "invisible-transport"]
    told = [part for finding in findings for part in (finding.text, finding.remedy) if part]
    return why_empty(session) or f"No RPC messages: {' '.join(told)}"
