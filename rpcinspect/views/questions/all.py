"""The questions about a whole run that commands of their own answer, by the names of these.

In: the modules beside this one. Out: `QUESTIONS`. To add one: a module here and its line in `QUESTIONS`, a
class in cli/questions.py, which has its help and its options, and that name in cli/program.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from rpcinspect.run.run import RunModel
from rpcinspect.views.questions import contexts, devices, disconnects, latency, profile, rrefs
from rpcinspect.views.questions.question import Question
from rpcinspect.views.questions.session import finding_json
from rpcinspect.views.text.columns import Part
from rpcinspect.views.text.summary import finding_text


def _findings(run: RunModel, _: bool) -> Iterator[Part]:
    """As they stand below the table of messages."""
    for number, finding in enumerate(run.findings):
        if number:
            yield "", ""
        yield finding_text(finding)
    if not run.findings:
        yield "no findings", ""


QUESTIONS: dict[str, Question] = {
    "contexts": contexts.QUESTION,
    "latency": latency.QUESTION,
    "rrefs": rrefs.QUESTION,
    "devices": devices.QUESTION,
    "disconnects": disconnects.QUESTION,
    "profile": profile.QUESTION,
    "findings": Question(
        noun="finding",
        kinds=("finding",),
        count=lambda run, _: len(run.findings),
        show=_findings,
        json=lambda run: map(finding_json, run.findings),
    ),
}
