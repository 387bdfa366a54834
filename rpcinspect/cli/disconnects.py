"""`rpcinspect disconnects`: who left first, and what was open then."""

from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.options import LogOptions

if TYPE_CHECKING:
    from rpcinspect.cli.answer import Answer


class DisconnectsCommand(LogOptions, frozen=True, kw_only=True):
    """Show who disconnected first, and what was pending then."""

    EXAMPLES: ClassVar = ("disconnects run.pcap", "disconnects run.pcap --worker-log worker1=worker1.log")

    def how(self) -> "Answer":
        from rpcinspect.cli.answer import Answer, start_ns
        from rpcinspect.views.jsonl.questions import closings_json
        from rpcinspect.views.text.closings import show_closings

        return Answer(
            noun="pipe",
            count=lambda run: run.closings.pipes,
            show=lambda run, console: show_closings(run.closings, start_ns(run), console),
            json=lambda run: closings_json(run.closings),
            kinds=("departure",),
        )
