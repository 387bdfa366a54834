"""`rpcinspect browse`: a capture in the terminal."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from rpcinspect.cli.options import STDIN, CaptureOptions, FilesArgument, option

if TYPE_CHECKING:
    from rpcinspect.capture import Live


class BrowseCommand(CaptureOptions, frozen=True, kw_only=True):
    """Look through captures in the terminal: calls, messages, bytes, tensors."""

    EXAMPLES: ClassVar = ("browse run.pcap", "browse --live lo")
    EXITS: ClassVar = {
        0: "ended by a key",
        2: "wrong options, or no terminal",
        3: "not readable as a capture",
        130: "interrupted",
    }

    files: FilesArgument = []
    interface: Annotated[
        str | None, option("--live INTERFACE", "Capture there; show messages as they come.")
    ] = None

    def sources(self) -> "list[str | Live]":
        if self.interface is None:
            return super().sources()
        from rpcinspect.capture import Live

        return [Live(self.interface)]

    def mistakes(self) -> Iterator[str]:
        from rpcinspect.browse.full_screen import missing_terminal
        from rpcinspect.cli.requirements import missing_textual

        yield from super().mistakes()
        if self.interface is not None and self.files:
            yield "--live and FILE can't be used together"
        if self.interface is None and not self.files:
            yield "no capture is named: give FILE, - for standard input, or --live INTERFACE"
        for missing in (missing_textual(), missing_terminal(STDIN in self.files)):
            if missing is not None:
                yield missing

    def run(self) -> int:
        """Shows it; returns the exit code."""
        from rpcinspect.cli.browsing import browse

        return browse(self)

    @property
    def live(self) -> bool:
        return self.interface is not None or STDIN in self.files
