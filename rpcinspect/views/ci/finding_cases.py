"""Findings as tests: a case for each code, which fails where a finding of severity error has it.

In: a run. Out: a suite, with the same cases for every capture, and marks for errors and warnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.checks.findings import CODES
from rpcinspect.fields.phrases import counted, indexes
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Finding
from rpcinspect.views.ci.suite import Annotation, CaseResult, SuiteResult, about
from rpcinspect.views.text.summary import finding_text, problem_line

WITHOUT_MESSAGES = frozenset(
    {
        "failed-init",
        "no-rpc",
        "invisible-transport",
        "capture-gap",
        "truncated-packets",
        "conflicting-overlap",
    }
)
"""Codes that are looked for in captures without a message, too."""
UNKNOWN = "not looked for: the capture has no RPC message"


def findings_suite(run: RunModel) -> SuiteResult:
    """Returns what was found, and what was not."""
    captures = [capture.path for capture in run.session.captures]
    return SuiteResult(
        command="findings",
        about=about(captures),
        cases=(*_cases(run), *_left_out(run)),
        annotations=tuple(_annotations(run, about(captures))),
        properties={
            "captures": ", ".join(captures),
            "messages": str(len(run)),
            "findings": str(len(run.findings)),
        },
    )


def _cases(run: RunModel) -> Iterator[CaseResult]:
    for code in CODES:
        its = [finding for finding in run.findings if finding.code == code]
        lines = tuple(line for finding in its for line in finding_text(finding).plain.splitlines())
        errors = [finding for finding in its if finding.severity == "error"]
        if errors:
            yield CaseResult(name=code, outcome="failure", message=_message(errors), lines=lines)
        elif its or len(run) or code in WITHOUT_MESSAGES:
            yield CaseResult(name=code, lines=lines)
        else:
            yield CaseResult(name=code, outcome="skipped", message=UNKNOWN)


def _message(errors: Sequence[Finding]) -> str:
    first, more = errors[0], len(errors) - 1
    return f"{first.text} (and {counted(more, 'more error')})" if more else first.text


def _left_out(run: RunModel) -> Iterator[CaseResult]:
    """A check that failed itself has found nothing, which must not look as if all were well."""
    lines = [
        problem_line(one, run.session.captures) for one in run.session.problems if one.layer == "finding"
    ]
    if lines:
        yield CaseResult(name="all checks ran", outcome="error", message=lines[0], lines=tuple(lines))


def _annotations(run: RunModel, name: str) -> Iterator[Annotation]:
    for finding in run.findings:
        if finding.severity == "info":
            continue
        where = f" ({indexes(finding.messages)})" if finding.messages else ""
        yield Annotation(
            level="error" if finding.severity == "error" else "warning",
            title=f"{finding.code}: {name}",
            lines=(f"{finding.text}{where}", *([finding.remedy] if finding.remedy else [])),
        )
