"""`rpcinspect rrefs`: the remote references of a run."""

from typing import ClassVar

from rpcinspect.cli.options import AllOption, QuestionOptions


class RrefsCommand(QuestionOptions, frozen=True, kw_only=True):
    """List remote references: who made, held and deleted each."""

    QUESTION: ClassVar = "rrefs"
    EXAMPLES: ClassVar = ("rrefs run.pcap", "rrefs run.pcap --all -f 'dst == ps'")

    show_all: AllOption = False
