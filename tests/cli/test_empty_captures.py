"""What is said of a capture without messages to whoever does not see the findings."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.cli.output import empty_line
from rpcinspect.session.model import Finding, Session
from tests.checks.talks import of_capture
from tests.session.records import Talk

HIDDEN = Finding(
    code="invisible-transport",
    severity="error",
    text="It went through shared memory.",
    remedy="Turn it off.",
)
NONE = Finding(
    code="no-rpc", severity="error", text="No RPC messages: nothing there.", remedy="Look elsewhere."
)


def told(*findings: Finding) -> str | None:
    session: Session = Talk().finish()
    return empty_line(replace(session, findings=findings))


def test_findings_are_quoted() -> None:
    assert told(HIDDEN) == "No RPC messages: It went through shared memory. Turn it off."
    assert told(HIDDEN, replace(HIDDEN, text="And so did that.", remedy=None)) == (
        "No RPC messages: It went through shared memory. Turn it off. And so did that."
    )
    assert told(NONE) == "No RPC messages: nothing there. Look elsewhere."


def test_other_findings_explain_nothing() -> None:
    assert told(NONE, replace(HIDDEN, code="unsafe-pickle")) == told(NONE)


def test_nothing_is_said_where_there_are_messages() -> None:
    assert empty_line(of_capture("basic_chain")[0]) is None
