"""`rpcinspect disconnects`: who left first, and what was open then."""

from typing import ClassVar

from rpcinspect.cli.options import LogOptions


class DisconnectsCommand(LogOptions, frozen=True, kw_only=True):
    """Show who disconnected first, and what was pending then."""

    QUESTION: ClassVar = "disconnects"
    EXAMPLES: ClassVar = ("disconnects run.pcap", "disconnects run.pcap --worker-log worker1=worker1.log")
