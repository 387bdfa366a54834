"""`rpcinspect latency`: where the time of a run went."""

from typing import ClassVar

from rpcinspect.cli.options import AllOption, QuestionOptions


class LatencyCommand(QuestionOptions, frozen=True, kw_only=True):
    """Show where the time went, by function and by pair of workers."""

    QUESTION: ClassVar = "latency"
    EXAMPLES: ClassVar = ("latency run.pcap", "latency run.pcap -f 'dst == ps and not control' --format json")

    show_all: AllOption = False
