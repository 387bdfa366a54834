"""`rpcinspect mcp`: captures for coding agents."""

import sys
from collections.abc import Iterator
from typing import Annotated, ClassVar

from rpcinspect import exit_codes
from rpcinspect.cli.compare_options import captures_of
from rpcinspect.cli.options import STDIN, CaptureOptions, argument, option


class McpCommand(CaptureOptions, frozen=True, kw_only=True):
    """Serve captures to coding agents, over the Model Context Protocol."""

    EXAMPLES: ClassVar = ("mcp run.pcap", "mcp good.pcap bad.pcap", "mcp host1.pcap,host2.pcap")
    EXITS: ClassVar = {0: "standard input has ended", 2: "wrong options", 130: "interrupted"}

    files: Annotated[
        list[str],
        argument("FILE...", "Captures that may be asked about, each a run; A1,A2 for several of one run."),
    ]
    max_chars: Annotated[
        int, option("--max-chars N", "Limit each answer to N characters; the rest is another page.", min=4000)
    ] = 20_000

    def mistakes(self) -> Iterator[str]:
        from rpcinspect.cli.requirements import missing_mcp

        yield from super().mistakes()
        if STDIN in self.files:
            yield "standard input is the agent's: name the captures"
        missing = missing_mcp()
        if missing is not None:
            yield missing

    def inputs(self) -> list[str]:
        return [path for file in self.files for path in captures_of(file)]

    def run(self) -> int:
        """Answers until standard input ends; returns the exit code."""
        from rpcinspect.agents.given import GivenCaptures
        from rpcinspect.agents.server import serve
        from rpcinspect.cli.collector import imports_are_over
        from rpcinspect.cli.ending import end_at_once
        from rpcinspect.cli.output import say

        imports_are_over()
        if sys.stdin.isatty():
            say("this waits for the client of a coding agent, which starts it by itself; Ctrl-C ends it")
        code = exit_codes.OK
        try:
            serve(
                GivenCaptures([captures_of(file) for file in self.files], self.decoding_options()),
                self.max_chars,
            )
        except KeyboardInterrupt:
            code = exit_codes.INTERRUPTED
        end_at_once(code)
