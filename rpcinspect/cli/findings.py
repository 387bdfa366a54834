"""`rpcinspect findings`: what is worth knowing of a run or its captures."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.ci_reports import (
    AnnotationsOption,
    JunitOption,
    report_mistakes,
    report_results,
    reported,
)
from rpcinspect.cli.options import ANSWERED, CheckOption, QuestionOptions

if TYPE_CHECKING:
    from rpcinspect.run.run import RunModel


class FindingsCommand(QuestionOptions, frozen=True, kw_only=True):
    """List errors, warnings and hints, with remedies."""

    EXAMPLES: ClassVar = (
        "findings run.pcap",
        "findings run.pcap --check --format jsonl",
        "findings run.pcap --check --junit findings.xml",
    )
    EXITS: ClassVar = {**ANSWERED, 1: "with --check: there is a finding of severity error"}

    check: CheckOption = False
    junit: JunitOption = None
    annotations: AnnotationsOption = None

    def shows_why_empty(self) -> bool:
        return self.format == "table"

    def finish(self, run: "RunModel") -> bool:
        from rpcinspect.views.ci.finding_cases import findings_suite

        report_results(self, lambda: findings_suite(run))
        return self.check and any(one.severity == "error" for one in run.findings)

    def run(self) -> int:
        with reported(self, "findings", self.files):
            return super().run()

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        yield from report_mistakes(self)
