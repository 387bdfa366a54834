"""`rpcinspect devices`: the devices that tensors went between."""

from typing import ClassVar

from rpcinspect.cli.options import QuestionOptions


class DevicesCommand(QuestionOptions, frozen=True, kw_only=True):
    """Show the devices that tensors moved between, and the maps needed."""

    QUESTION: ClassVar = "devices"
    EXAMPLES: ClassVar = ("devices run.pcap", "devices run.pcap --format jsonl")
