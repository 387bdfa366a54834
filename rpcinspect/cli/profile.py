"""`rpcinspect profile`: what callers' profilers say of operators at the callees."""

from typing import ClassVar

from rpcinspect.cli.options import AllOption, QuestionOptions


class ProfileCommand(QuestionOptions, frozen=True, kw_only=True):
    """Show operators at callees, as the callers' profilers saw them."""

    QUESTION: ClassVar = "profile"
    EXAMPLES: ClassVar = ("profile run.pcap", "profile run.pcap --all")

    show_all: AllOption = False
