"""`rpcinspect findings`: what is worth knowing of a run or its captures."""

from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.options import ANSWERED, CheckOption, QuestionOptions

if TYPE_CHECKING:
    from rpcinspect.run.run import RunModel


class FindingsCommand(QuestionOptions, frozen=True, kw_only=True):
    """List errors, warnings and hints, with remedies."""

    QUESTION: ClassVar = "findings"
    EXAMPLES: ClassVar = ("findings run.pcap", "findings run.pcap --check --format jsonl")
    EXITS: ClassVar = {**ANSWERED, 1: "with --check: there is a finding of severity error"}

    check: CheckOption = False

    def failed(self, run: "RunModel") -> bool:
        return self.check and any(one.severity == "error" for one in run.findings)
