"""`rpcinspect diff`: decodes two runs, compares them and says where they part."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from rpcinspect.cli.ci_reports import AnnotationsOption, JunitOption, report_mistakes, reported
from rpcinspect.cli.compare_options import ComparisonOptions, captures_of
from rpcinspect.cli.options import OutputOption, argument, option


class DiffCommand(ComparisonOptions, frozen=True, kw_only=True):
    """Compare two runs and show the first message that differs."""

    EXAMPLES: ClassVar = (
        "diff good.pcap bad.pcap",
        "diff run.pcap --context 0:3 --context 0:7",
        "diff good.pcap bad.pcap --tolerance --ignore device,latency",
        "diff good.pcap bad.pcap --format html -o diff.html",
        "diff good.pcap bad.pcap --junit diff.xml",
    )
    EXITS: ClassVar[Mapping[int, str]] = {
        0: "the same",
        1: "different",
        2: "wrong options, or the output can't be written",
        3: "not readable as a capture, or neither run has a message of RPC",
        130: "interrupted",
    }

    files: Annotated[list[str], argument("A [B]", "Captures of two runs; A1,A2 for several of one run.")]
    shrink: Annotated[
        Path | None, option("--shrink PCAP", "Write the smallest part of B that shows the first difference.")
    ] = None
    show_all: Annotated[bool, option("-a --all", "List every difference.")] = False
    format: Annotated[
        Literal["table", "jsonl", "html"], option("--format", "Write a table, JSON lines, or a page.")
    ] = "table"
    output: OutputOption = None
    junit: JunitOption = None
    annotations: AnnotationsOption = None

    def run(self) -> int:
        """Compares; returns the exit code."""
        from rpcinspect.cli.comparing import compared

        with reported(self, "diff", *map(captures_of, self.files)):
            return compared(self)

    def options(self) -> list[str]:
        """Returns the options for reading captures and for comparing, as words."""
        words = self.comparing()
        words += [f"--reader={self.reader}"] if self.reader != "auto" else []
        words += [f"--unpack-limit={self.unpack_limit}"] if self.unpack_limit is not None else []
        return words + [f"--tshark-option={option}" for option in self.tshark_options]

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        yield from self.runs_mistakes()
        yield from report_mistakes(self)
