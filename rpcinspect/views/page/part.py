"""What of a run a page shows: everything, or what the messages that a filter picked take part in.

In: a run, and what was picked. Out: indexes, answers, findings, and how much was left out.
"""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.run import Run
from rpcinspect.session.model import Finding
from rpcinspect.views.shown import Shown


class Part(Struct, frozen=True):
    """See above."""

    filter: str | None
    """None where everything is shown."""
    indexes: tuple[int, ...]
    """Of messages, ascending."""
    answers: Run
    graphs: tuple[ContextGraph, ...]
    """Each with the messages to be shown."""
    findings: tuple[Finding, ...]
    hidden_findings: int


def part_of(run: Run, shown: Shown | None) -> Part:
    """What there is to show."""
    session = run.session
    if shown is None:
        return Part(None, tuple(range(len(run.messages))), run, run.graphs, session.findings, 0)
    narrowed = run.narrowed(shown.rows, shown.touched)
    findings = shown.findings(session)
    return Part(
        filter=shown.text,
        indexes=tuple(sorted(narrowed.picked)),
        answers=narrowed,
        graphs=tuple(map(narrowed.shown, narrowed.graphs)),
        findings=findings,
        hidden_findings=len(session.findings) - len(findings),
    )
