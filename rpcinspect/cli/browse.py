"""`rpcinspect browse`: a capture in the terminal."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from rpcinspect.cli.compare_options import ComparisonOptions
from rpcinspect.cli.options import STDIN, FilesArgument, option

if TYPE_CHECKING:
    from rpcinspect.capture import Live


class BrowseCommand(ComparisonOptions, frozen=True, kw_only=True):
    """Look through captures in the terminal: calls, messages, bytes, tensors."""

    EXAMPLES: ClassVar = (
        "browse run.pcap",
        "browse --live lo",
        "browse --diff good.pcap bad.pcap",
        "browse --diff run.pcap --context 0:3 --context 0:7",
    )
    EXITS: ClassVar = {
        0: "ended by a key",
        2: "wrong options, or no terminal",
        3: "not readable as a capture",
        130: "interrupted",
    }

    files: FilesArgument = []
    diff: Annotated[
        bool, option("--diff", "Show two runs side by side, and what differs; with the options of diff.")
    ] = False
    index: Annotated[
        bool, option("--index", "Keep an index beside the capture: it opens at once the next time.")
    ] = False
    interface: Annotated[
        str | None, option("--live INTERFACE", "Capture on it; show messages as they come.")
    ] = None

    def sources(self) -> "list[str | Live]":
        if self.interface is None:
            return super().sources()
        from rpcinspect.capture import Live

        return [Live(self.interface)]

    def mistakes(self) -> Iterator[str]:
        from rpcinspect.cli.requirements import missing_for_browse

        yield from super().mistakes()
        if self.diff:
            yield from self.runs_mistakes()
            if self.interface is not None:
                yield "--diff compares two captures: no --live with it"
        else:
            for name in dict.fromkeys(word.partition("=")[0] for word in self.comparing()):
                yield f"{name} is for --diff"
        if self.interface is not None and self.files:
            yield "--live and FILE can't be used together"
        if self.interface is None and not self.files:
            yield "no capture is named: give FILE, - for standard input, or --live INTERFACE"
        if self.index and (self.live or self.diff):
            yield "--index is for captures that are files: not with --live, - or --diff"
        yield from missing_for_browse(STDIN in self.files)

    def inputs(self) -> list[str]:
        return super().inputs() if self.diff else self.files

    def run(self) -> int:
        """Shows it; returns the exit code."""
        if self.diff:
            from rpcinspect.cli.browsing_pair import browse_pair

            return browse_pair(self)
        from rpcinspect.cli.browsing import browse

        return browse(self)

    @property
    def live(self) -> bool:
        return self.interface is not None or STDIN in self.files
