"""`rpcinspect decode`: the options, and what is wrong with them; `messages` shows what they ask for."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from rpcinspect.cli.options import (
    ANSWERED,
    STDIN,
    AllOption,
    CheckOption,
    FilesArgument,
    JobsOption,
    LogOptions,
    NoHashOption,
    RedactOption,
    RedactSeedOption,
    option,
)

if TYPE_CHECKING:
    from rpcinspect.capture import Live, Reading
    from rpcinspect.filter.selection import Filter


class DecodeCommand(LogOptions, frozen=True, kw_only=True):
    """Show RPC messages with their envelopes unwrapped, or calls."""

    EXAMPLES: ClassVar = (
        "decode run.pcap",
        "decode run.pcap --calls",
        """decode run.pcap -f 'call ~ "forward" and latency > 50ms\'""",
        "decode run.pcap --message 12",
        "decode run.pcap --format jsonl > run.jsonl",
        "decode run.pcap -w shared.pcap --redact",
        "decode --live lo",
    )
    EXITS: ClassVar = {
        0: "decoded, also where the capture was damaged",
        1: "--check: a finding of severity error; --roundtrip: a message differs",
        2: ANSWERED[2],
        3: "not readable as a capture; with --strict: there is a problem",
        130: "interrupted (not --live, which Ctrl-C ends)",
    }

    files: FilesArgument = []
    calls: Annotated[bool, option("--calls", "Show one row per call: caller, callee, result, duration.")] = (
        False
    )
    message: Annotated[int | None, option("--message N", "Show message N in full.", min=0)] = None
    show_all: AllOption = False
    stream: Annotated[bool, option("--stream", "Write each message as soon as it is complete.")] = False
    no_hash: NoHashOption = False
    jobs: JobsOption = None
    roundtrip: Annotated[bool, option("--roundtrip", "Re-encode every message; compare bytes.")] = False
    fields: Annotated[bool, option("--fields", "List the fields for filters.")] = False
    write: Annotated[
        Path | None,
        option("-w --write PCAP", "Save what is shown, with its requests and answers, as a pcap."),
    ] = None
    redact: RedactOption = False
    redact_seed: RedactSeedOption = None
    check: CheckOption = False
    strict: Annotated[bool, option("--strict", "Exit with 3 on any decoding problem.")] = False
    interface: Annotated[
        str | None, option("--live INTERFACE", "Capture on it until Ctrl-C; show messages as they come.")
    ] = None
    capture_filter: Annotated[
        str | None, option("--capture-filter FILTER", "--live: capture only these packets, such as 'tcp'.")
    ] = None

    def run(self) -> int:
        """Decodes and shows; returns the exit code."""
        from rpcinspect.cli.messages import decode

        return decode(self)

    @property
    def json(self) -> bool:
        """Whether objects for scripts are written: one per line, or all in one document."""
        return self.format != "table"

    @property
    def twice(self) -> bool:
        """Whether a second pass takes the messages that the first has found."""
        return self.message is not None or self.write is not None

    @property
    def live(self) -> bool:
        return self.stream or super().live or self.interface is not None

    @property
    def streams(self) -> bool:
        """Whether messages are shown before the end of the input is known."""
        return self.stream or (self.live and not (self.json or self.calls or self.twice or self.roundtrip))

    def sources(self) -> "list[str | Live]":
        if self.interface is None:
            return super().sources()
        from rpcinspect.capture import Live

        return [Live(self.interface)]

    def reading(self) -> "Reading":
        from msgspec.structs import replace

        return replace(super().reading(), capture_filter=self.capture_filter)

    def chosen(self) -> "Filter | None":
        from rpcinspect.cli.guard import UsageMistake

        found = super().chosen()
        if found is not None and self.streams and found.late:
            late = " and ".join(found.late)
            raise UsageMistake(f"-f: {late} is known only at the end: leave out --stream")
        return found

    def mistakes(self) -> Iterator[str]:
        if self.fields:
            return
        yield from super().mistakes()
        if not self.files and self.interface is None:
            yield "no capture is named: give FILE, - for standard input, or --live INTERFACE"
        asked = {
            "--stream": self.stream,
            "--message": self.message is not None,
            "--roundtrip": self.roundtrip,
            "-w": self.write is not None,
            "--calls": self.calls,
        }
        wanted = [option for option, given in asked.items() if given]
        if len(wanted) > 1:
            yield f"{' and '.join(wanted)} can't be used together"
        if self.stream and self.format == "json":
            yield "--stream can't write one document: --format jsonl has lines"
        if self.roundtrip and self.json:
            yield f"--roundtrip has no {self.format} form"
        if self.roundtrip and self.filter is not None:
            yield "--roundtrip and -f can't be used together"
        if self.worker_logs and wanted:
            yield f"--worker-log is for the messages and for disconnects: no {wanted[0]} with it"
        yield from self._live_mistakes(wanted)
        yield from self._writing_mistakes()

    def _live_mistakes(self, wanted: list[str]) -> Iterator[str]:
        if self.interface is None:
            if self.capture_filter is not None:
                yield "--capture-filter is for --live"
        elif self.files:
            yield "--live and FILE can't be used together"
        elif wanted not in ([], ["--stream"]):
            yield "--live can't be read twice: capture to a file first (tcpdump -w), then decode that"
        elif self.reader in ("tshark", "pyshark") or self.tshark_options:
            yield "--live is always read natively: leave out --reader and --tshark-option"

    def _writing_mistakes(self) -> Iterator[str]:
        if self.redact_seed is not None and not self.redact:
            yield "--redact-seed is for --redact"
        if self.redact and self.write is None:
            yield "--redact is for a capture that is written: -w PCAP, or export rpclog"
        if self.redact and self.json:
            yield f"--redact: what --format {self.format} prints is not redacted; write the capture alone"
        if self.write is not None and str(self.write) == STDIN:
            yield "-w: a capture is written to a file, not to standard output"
