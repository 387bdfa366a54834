"""`no-rpc`: nothing of RPC is in the capture, and no other finding says why.

In: a session without messages. Out: what the capture has instead, and how to capture what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcinspect.session.model import Finding
from rpcinspect.trace.capture_faults import invisible_transport
from rpcinspect.trace.evidence import CaptureEvidence
from rpcinspect.trace.failed_init import failed_inits
from rpcinspect.trace.stage import Stage
from rpcinspect.trace.words import amount

CAPTURE_RIGHT = (
    "Capture on the interface that the workers talk over (lo on one machine, tcpdump -i any on several), "
    "from before init_rpc on."
)
RECORD_AGAIN = "Record the job again, and see whether it calls init_rpc."


class NoRpc(Stage):
    """See the module's text."""

    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        if run.session.totals.messages or any(invisible_transport(run.session)) or any(failed_inits(run)):
            return
        yield Finding(
            code="no-rpc",
            severity="error",
            text=f"No RPC messages: {_instead(run)}.",
            remedy=RECORD_AGAIN if run.session.logged else CAPTURE_RIGHT,
        )


def _instead(run: CaptureEvidence) -> str:
    """What there is."""
    session, totals = run.session, run.session.totals
    if session.logged:
        return "the log holds none that is whole"
    if not sum(capture.packets for capture in session.captures):
        return "the capture holds no packets"
    if session.pipes:
        return "pipes between workers were opened, but no message was sent or captured on them"
    if run.wire.visits:
        return (
            "the workers met at the TCPStore, but no pipe between them was captured. Either they never "
            "opened one, since init_rpc failed, or it is on another interface"
        )
    if totals.store_bytes:
        return "processes met at a TCPStore, but nothing that init_rpc says there was captured"
    if totals.skipped_bytes:
        return (
            f"the capture's TCP payload ({amount(totals.skipped_bytes)}) is neither TensorPipe nor a TCPStore"
        )
    return "the capture holds no TCP payload"
