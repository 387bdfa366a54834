"""`rpcinspect findings`: what is worth knowing of a run or its captures."""

from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.options import ANSWERED, CheckOption, QuestionOptions

if TYPE_CHECKING:
    from rich.console import Console

    from rpcinspect.cli.answer import Answer
    from rpcinspect.run.run import RunModel


class FindingsCommand(QuestionOptions, frozen=True, kw_only=True):
    """List what is wrong or worth knowing, and what helps."""

    EXAMPLES: ClassVar = ("findings run.pcap", "findings run.pcap --check --format jsonl")
    EXITS: ClassVar = {**ANSWERED, 1: "with --check: there is a finding of severity error"}

    check: CheckOption = False

    def how(self) -> "Answer":
        from rpcinspect.cli.answer import Answer
        from rpcinspect.views.jsonl.lines import finding_json

        return Answer(
            noun="finding",
            count=lambda run: len(run.findings),
            show=_show,
            json=lambda run: map(finding_json, run.findings),
            kinds=("finding",),
            failed=lambda run: self.check and any(one.severity == "error" for one in run.findings),
        )


def _show(run: "RunModel", console: "Console") -> None:
    """Prints them as they stand below the table of messages."""
    from rpcinspect.views.text.summary import finding_text

    for number, finding in enumerate(run.findings):
        if number:
            console.print()
        console.print(finding_text(finding), soft_wrap=not console.is_terminal)
    if not run.findings:
        console.print("no findings")
