"""What of a run a page shows: everything, or what the messages that a filter picked take part in.

In: a run, and what was picked. Out: indexes, contexts, references and findings, and how much was left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from rpcinspect.session.model import Finding
from rpcinspect.trace.answers import Trace
from rpcinspect.trace.graph import ContextGraph
from rpcinspect.trace.ledger import RRefStory
from rpcinspect.views.shown import Shown


@dataclass(frozen=True, slots=True)
class Part:
    """See above."""

    filter: str | None
    """None where everything is shown."""
    indexes: tuple[int, ...]
    """Of messages, ascending."""
    graphs: tuple[ContextGraph, ...]
    rrefs: tuple[RRefStory, ...]
    findings: tuple[Finding, ...]
    hidden_findings: int


def part_of(run: Trace, shown: Shown | None) -> Part:
    """What there is to show."""
    session = run.session
    if shown is None:
        return Part(None, tuple(range(len(run.messages))), run.graphs, run.ledger, session.findings, 0)
    findings = shown.findings(session)
    contexts, rrefs = shown.touched.contexts, shown.touched.rrefs
    return Part(
        filter=shown.text,
        indexes=session.indexes([row for row, picked in enumerate(shown.rows) if picked]),
        graphs=tuple(graph for graph in run.graphs if (graph.job, graph.context_id) in contexts),
        rrefs=tuple(story for story in run.ledger if (story.job, story.rref_id) in rrefs),
        findings=findings,
        hidden_findings=len(session.findings) - len(findings),
    )
