"""`rpcinspect contexts`, `latency` and others that ask about a whole run, with hardly an option of their own.

In: values from the command line. Out: classes whose names are those of questions in `views.questions.all`.
"""

from typing import ClassVar

from rpcinspect.cli.options import AllOption, LogOptions, QuestionOptions


class ContextsCommand(QuestionOptions, frozen=True, kw_only=True):
    """List autograd contexts and which gradients came back."""

    EXAMPLES: ClassVar = ("contexts run.pcap", "contexts run.pcap -f 'src == trainer0' --format jsonl")


class DevicesCommand(QuestionOptions, frozen=True, kw_only=True):
    """Show the devices that tensors moved between, and the maps needed."""

    EXAMPLES: ClassVar = ("devices run.pcap", "devices run.pcap --format jsonl")


class DisconnectsCommand(LogOptions, frozen=True, kw_only=True):
    """Show who disconnected first, and what was pending then."""

    EXAMPLES: ClassVar = ("disconnects run.pcap", "disconnects run.pcap --worker-log worker1=worker1.log")


class LatencyCommand(QuestionOptions, frozen=True, kw_only=True):
    """Show where the time went, by function and by pair of workers."""

    EXAMPLES: ClassVar = ("latency run.pcap", "latency run.pcap -f 'dst == ps and not control' --format json")

    show_all: AllOption = False


class ProfileCommand(QuestionOptions, frozen=True, kw_only=True):
    """Show operators at callees, as the callers' profilers saw them."""

    EXAMPLES: ClassVar = ("profile run.pcap", "profile run.pcap --all")

    show_all: AllOption = False


class RrefsCommand(QuestionOptions, frozen=True, kw_only=True):
    """List remote references: who made, held and deleted each."""

    EXAMPLES: ClassVar = ("rrefs run.pcap", "rrefs run.pcap --all -f 'dst == ps'")

    show_all: AllOption = False
