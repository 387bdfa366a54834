"""`no-rpc`: nothing of RPC is in the capture, and no other finding says why.

In: a session without messages. Out: what the capture has instead, and how to capture what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcinspect.checks.capture_faults import invisible_transport
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.failed_init import RETRIES, failed_inits
from rpcinspect.checks.stage import Stage
from rpcinspect.session.model import Finding
from rpcinspect.session.words import amount, counted, several

CAPTURE_RIGHT = (
    "Capture on the interface that the workers talk over (lo on one machine, tcpdump -i any on several), "
    "from before init_rpc on."
)
SAME_STORE = "See whether all workers have the same MASTER_ADDR and MASTER_PORT (init_method)."
RECORD_AGAIN = "Record the job again, and see whether it calls init_rpc."


class NoRpc(Stage):
    """See the module's text."""

    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        if run.session.totals.messages or any(invisible_transport(run.session)) or any(failed_inits(run)):
            return
        refused = _refused(run)
        remedy = RECORD_AGAIN if run.session.logged else CAPTURE_RIGHT
        if refused:
            remedy = f"{SAME_STORE} If they do: {remedy}"
        yield Finding(
            code="no-rpc",
            severity="error",
            text=f"No RPC messages: {_instead(run)}{refused}.",
            remedy=remedy,
        )


def _refused(run: CaptureEvidence) -> str:
    """Which addresses processes tried again and again, if there is a store that they may have meant."""
    tried = [one for one in run.wire.refusals if one.count >= RETRIES] if run.wire.stores else []
    told = [f"{counted(one.count, 'connection')} to {one.server}" for one in tried]
    if not told:
        return ""
    silent = {one.silent for one in tried}
    verb = "failed" if len(silent) > 1 else "got no answer" if True in silent else "were refused"
    return f"; the store is at {several(sorted(run.wire.stores))}, and {several(told)} {verb}"


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
