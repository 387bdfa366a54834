"""Why a capture shows no messages, and what to do about it, for whoever does not see the findings.

In: the session. Out: one line.
"""

from __future__ import annotations

from rpcinspect.session.model import Session

REASONS = ("invisible-transport", "failed-init", "no-rpc")
"""Codes of the findings that tell it."""
NOTHING = "No RPC messages"


def empty_line(session: Session) -> str | None:
    """The line; None where messages were found."""
    if session.totals.messages:
        return None
    findings = [finding for finding in session.findings if finding.code in REASONS]
    told = " ".join([part for finding in findings for part in (finding.text, finding.remedy) if part])
    return told if told.startswith(NOTHING) else f"{NOTHING}: {told}"
