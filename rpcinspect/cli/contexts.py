"""`rpcinspect contexts`: the autograd contexts of a run."""

from typing import ClassVar

from rpcinspect.cli.options import QuestionOptions


class ContextsCommand(QuestionOptions, frozen=True, kw_only=True):
    """List autograd contexts and which gradients came back."""

    QUESTION: ClassVar = "contexts"
    EXAMPLES: ClassVar = ("contexts run.pcap", "contexts run.pcap -f 'src == trainer0' --format jsonl")
