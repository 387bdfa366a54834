"""`rpcinspect latency`: where the time of a run went."""

from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.options import AllOption, QuestionOptions

if TYPE_CHECKING:
    from rpcinspect.cli.answer import Answer
    from rpcinspect.run.run import RunModel


class LatencyCommand(QuestionOptions, frozen=True, kw_only=True):
    """Show where the time went, by function and by pair of workers."""

    EXAMPLES: ClassVar = ("latency run.pcap", "latency run.pcap -f 'dst == ps and not control' --format json")

    show_all: AllOption = False

    def how(self) -> "Answer":
        from rpcinspect.cli.answer import Answer
        from rpcinspect.views.jsonl.questions import latency_json
        from rpcinspect.views.text.latency import show_latency

        every = self.show_all or self.format != "table"

        def count(run: "RunModel") -> int:
            return sum(every or not timing.call.housekeeping for timing in run.latency.timings)

        return Answer(
            noun="exchange",
            count=count,
            show=lambda run, console: show_latency(run.latency, console, show_all=self.show_all),
            json=lambda run: latency_json(run.latency),
            kinds=("exchange", "latency", "straggler"),
            shows=lambda run: bool(run.latency.timings),  # what it leaves out, it counts
        )
