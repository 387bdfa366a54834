"""`rpcinspect export perfetto`: a run on a time line."""

from typing import ClassVar

from rpcinspect.cli.options import ShownOptions


class PerfettoCommand(ShownOptions, frozen=True, kw_only=True):
    """Write a timeline for ui.perfetto.dev or chrome://tracing."""

    EXAMPLES: ClassVar = ("export perfetto run.pcap -o run.json",)

    def run(self) -> int:
        """Writes the trace; returns the exit code."""
        from rpcinspect.cli.answer import write_file
        from rpcinspect.export.perfetto.trace import perfetto_pieces
        from rpcinspect.fields.phrases import printable_json

        return write_file(self, lambda run, shown: map(printable_json, perfetto_pieces(run, shown)))
