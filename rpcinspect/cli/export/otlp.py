"""`rpcinspect export otlp`: a run for tracing backends."""

from typing import ClassVar

from rpcinspect.cli.options import ShownOptions


class OtlpCommand(ShownOptions, frozen=True, kw_only=True):
    """Write spans as OTLP JSON for Jaeger, Tempo or any OpenTelemetry collector."""

    EXAMPLES: ClassVar = (
        "export otlp run.pcap -o trace.json",
        "export otlp run.pcap -f 'not housekeeping' -o trace.json",
    )

    def run(self) -> int:
        """Writes the spans; returns the exit code."""
        from rpcinspect.cli.answer import write_file
        from rpcinspect.export.otlp.requests import otlp_lines

        return write_file(self, otlp_lines)
