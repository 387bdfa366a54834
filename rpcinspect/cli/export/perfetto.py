"""`rpcinspect export perfetto`: a run on a time line, in a file or handed to a browser."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from rpcinspect.cli.options import ANSWERED, ShownOptions, option

if TYPE_CHECKING:
    from rpcinspect.filter.matches import Shown
    from rpcinspect.run.run import RunModel

MAX_OPENED = 500_000_000
"""Bytes of a trace that is handed to a browser, which has it in memory several times."""


class PerfettoCommand(ShownOptions, frozen=True, kw_only=True):
    """Write a timeline for ui.perfetto.dev or chrome://tracing, or open it there."""

    EXAMPLES: ClassVar = ("export perfetto run.pcap -o run.json", "export perfetto run.pcap --open")
    EXITS: ClassVar = {**ANSWERED, 1: "--open: no browser took the trace in time"}

    opens: Annotated[bool, option("--open", "Open the trace in Perfetto, by a page that is served once.")] = (
        False
    )
    ui: Annotated[
        str | None, option("--ui URL", "Open this copy of Perfetto. Default: https://ui.perfetto.dev.")
    ] = None

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if self.opens and self.output is not None:
            yield "--open hands the trace to a browser: no -o with it"
        if self.ui is None:
            return
        from rpcinspect.cli.export.handover import PERFETTO, is_page  # not at each start: servers take 30 ms

        if not self.opens:
            yield "--ui is for --open"
        if not is_page(self.ui):
            yield f"--ui: an address such as {PERFETTO} is needed"

    def run(self) -> int:
        """Writes the trace, or hands it over; returns the exit code."""
        from rpcinspect.cli.answer import write_file

        return self._open() if self.opens else write_file(self, _pieces)

    def _open(self) -> int:
        from rpcinspect import exit_codes
        from rpcinspect.cli.answer import over_run
        from rpcinspect.cli.export.handover import PERFETTO, hand_over
        from rpcinspect.errors import OutputError
        from rpcinspect.fields.phrases import captures_title
        from rpcinspect.files.temporary import Temporary

        size, title = 0, captures_title(self.files)

        def write(run: "RunModel", shown: "Shown | None") -> None:
            nonlocal size
            for piece in _pieces(run, shown):
                size += trace.write(piece)
                if size > MAX_OPENED:
                    raise OutputError(
                        f"the trace has more than {MAX_OPENED:,} bytes, too many for a page: choose a part, "
                        "such as -f 'ctx == 0:3' or -f 'time < 10s', or write it with -o for Perfetto's "
                        "trace_processor"
                    )

        with Temporary() as trace:
            code = over_run(self, write)
            taken = hand_over(trace, size, title, self.ui or PERFETTO)
        return code if taken else code or exit_codes.DIFFERENT


def _pieces(run: "RunModel", shown: "Shown | None") -> Iterator[bytes]:
    from rpcinspect.export.perfetto.trace import perfetto_pieces
    from rpcinspect.fields.phrases import printable_json

    return map(printable_json, perfetto_pieces(run, shown))
