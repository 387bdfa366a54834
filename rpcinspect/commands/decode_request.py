"""What the command line says of a decoding, and what is wrong with it.

In: values of options. Out: a `Request`; one line about the first mistake in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec.structs import replace

from rpcinspect.capture import Live
from rpcinspect.capture.source import STDIN_NAME
from rpcinspect.commands.arguments import ReadingRequest
from rpcinspect.commands.output import overwriting
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding, Options, Progress

if TYPE_CHECKING:
    from rpcinspect.filter.selection import Filter
    from rpcinspect.workerlog.read import WorkerLog

STDIN = "-"
EXPORTS = ("html", "perfetto", "parquet", "rpclog")
"""Formats of a whole run for other programs, a browser among them."""
MAX_PARTITION = 200
"""Characters of a partition's name, as the folder has it: file systems take 255."""
QUESTIONS = ("calls", "graph", "contexts", "latency", "profile", "rrefs", "device_maps", "closings")
"""Fields that ask about the whole run."""
ABRIDGED = frozenset({"calls", "latency", "profile", "rrefs"})
"""Questions whose answers leave something out for which there is `--all`."""


class Request(ReadingRequest, frozen=True, kw_only=True):
    """The options of one `decode` command; see `cli.decode` for the meaning of each."""

    format: str = "table"
    message: int | None = None
    show_all: bool = False
    stream: bool = False
    no_hash: bool = False
    tensors: Path | None = None
    roundtrip: bool = False
    calls: bool = False
    graph: str | None = None
    """The context of `--graph`."""
    contexts: bool = False
    latency: bool = False
    profile: bool = False
    rrefs: bool = False
    device_maps: bool = False
    closings: bool = False
    partition: str | None = None
    """What the session is called in the tables of `--format parquet`."""
    check: bool = False
    strict: bool = False
    interface: str | None = None
    capture_filter: str | None = None
    filter: str | None = None
    write: Path | None = None
    fields: bool = False
    redact: bool = False
    redact_seed: str | None = None
    worker_logs: tuple[str, ...] = ()
    """FILE or NAME=FILE, text logs of workers."""
    log_zone: str | None = None
    logs_read: tuple[WorkerLog, ...] = ()
    """What they say."""
    copies: tuple[tuple[str, str], ...] = ()
    """(path of the copy, name) of each input among `files` that was copied so that it can be read twice."""
    progress: Progress | None = None
    """Hears how far the reading is."""

    @property
    def questions(self) -> tuple[str, ...]:
        """What is asked of the whole run, by the options' names; more than one is a mistake."""
        return tuple(option.removeprefix("--") for option in self.given(" ".join(QUESTIONS)))

    @property
    def hashes(self) -> bool:
        """Whether the output has hashes of tensors (`sha256`)."""
        return not self.no_hash

    @property
    def json(self) -> bool:
        """Objects for scripts: one per line, or all in one document."""
        return self.format in ("jsonl", "json")

    @property
    def log(self) -> bool:
        """Whether the output is a log capture (`--format rpclog`)."""
        return self.format == "rpclog"

    @property
    def exports(self) -> bool:
        """A file for another program."""
        return self.format in EXPORTS

    @property
    def parquet(self) -> bool:
        """A partition of tables in a folder."""
        return self.format == "parquet"

    @property
    def twice(self) -> bool:
        """Whether a second pass takes the messages that the first has found."""
        return any(given is not None for given in (self.message, self.tensors, self.write))

    @property
    def live(self) -> bool:
        """Whether the input grows while it is read: Ctrl-C ends it, and what was read is shown."""
        return self.stream or STDIN in self.files or self.interface is not None

    @property
    def streams(self) -> bool:
        """Whether messages are shown before the end of the input is known."""
        at_the_end = self.json or self.exports or bool(self.questions) or self.twice
        return self.stream or (self.live and not at_the_end)

    def decoding(self, options: Options | None = None) -> Decoding:
        """Opens the inputs."""
        reading = replace(self.reading(), capture_filter=self.capture_filter)
        inputs = self.files if self.interface is None else (Live(self.interface),)
        options = replace(options or Options(), reading=reading, progress=self.progress)
        zone_s = None if self.log_zone is None else _zone(self.log_zone)
        try:
            return Decoding(inputs, replace(options, worker_logs=self.logs_read, log_zone_s=zone_s))
        except CaptureError as error:
            raise CaptureError(self._in_its_words(str(error))) from error

    def named(self, file: str) -> str:
        """The name by which the user knows one of `files`."""
        return dict(self.copies).get(file, file)

    def _in_its_words(self, text: str) -> str:
        for path, name in self.copies:
            text = text.replace(f"{path}:", f"{STDIN_NAME if name == STDIN else name}:", 1)
        return text


def mistake(request: Request) -> str | None:
    """What is wrong with the combination of options, in one line."""
    if request.files.count(STDIN) > 1:
        return "standard input can be read only once"
    inputs = _mistake_in_inputs(request) or _mistake_in_logs(request) or _mistake_in_redacting(request)
    if inputs is not None:
        return inputs
    wanted = request.given(f"stream message tensors roundtrip write {' '.join(QUESTIONS)}")
    if len(wanted) > 1:
        return f"{' and '.join(wanted)} can't be used together"
    if wanted and request.exports:
        return f"--format {request.format} is of a whole run: no {wanted[0]} with it"
    if request.roundtrip and request.json:
        return f"--roundtrip has no {request.format} form"
    if request.stream and request.format == "json":
        return "--stream can't write one document: --format jsonl has lines"
    if request.format == "mermaid":
        return "--format mermaid is no more: --format dot draws the graph, for Graphviz"
    if request.format == "dot" and request.questions != ("graph",):
        return "--format dot is for --graph"
    if request.show_all and _complete(request):
        return "--all is for the table and for --message: everything else is complete anyway"
    if request.no_hash and not request.json and not request.parquet:
        return "--no-hash is for --format jsonl, json and parquet"
    return _mistake_in_tables(request) or _mistake_in_outputs(request)


def _complete(request: Request) -> bool:
    """Whether nothing is left out that `--all` could add."""
    if request.json or request.exports or request.roundtrip or (request.twice and request.message is None):
        return True
    return bool(request.questions) and not ABRIDGED.issuperset(request.questions)


def _mistake_in_inputs(request: Request) -> str | None:
    if request.interface is None:
        if not request.files:
            return "no capture is named: give FILE, - for standard input, or --live INTERFACE"
        if request.capture_filter is not None:
            return "--capture-filter is for --live"
        return next(request.wrong_reading(), None)
    if request.files:
        return "--live captures by itself: no FILE with it"
    if request.twice or request.roundtrip or request.questions or request.exports:
        return "--live can't be read twice: capture to a file first (tcpdump -w), then decode that"
    if request.reader == "tshark" or request.tshark_options:
        return "--live is read natively, as it comes: no --reader tshark and no --tshark-option with it"
    return None


def _zone(text: str) -> int | None:
    from rpcinspect.commands.worker_logs import read_zone

    return read_zone(text)


def _mistake_in_logs(request: Request) -> str | None:
    if not request.worker_logs:
        return None if request.log_zone is None else "--log-zone is for --worker-log"
    if request.log_zone is not None and _zone(request.log_zone) is None:
        return f"--log-zone {request.log_zone}: a time zone is written as UTC, +05:30 or -08:00"
    shown = request.questions in ((), ("closings",)) and request.format in ("table", "jsonl", "json")
    if not shown or request.roundtrip or request.twice:
        return "--worker-log is for the table, --format jsonl and json, and --closings"
    if request.stream or request.live:
        return "--worker-log joins a capture that is read to its end: no --stream, --live or - with it"
    return None


def _log_paths(request: Request) -> list[str]:
    if not request.worker_logs:
        return []
    from rpcinspect.commands.worker_logs import read_named

    return [read_named(log)[1] for log in request.worker_logs]


def _mistake_in_redacting(request: Request) -> str | None:
    if not request.redact:
        return None if request.redact_seed is None else "--redact-seed is for --redact"
    if request.write is None and not request.log:
        return "--redact is for captures that are written: -w PCAP or --format rpclog -o LOG"
    if request.json:
        return f"--redact: what --format {request.format} prints is not redacted; write the capture alone"
    return None


def _mistake_in_tables(request: Request) -> str | None:
    name = request.partition
    if not request.parquet:
        return None if name is None else "--partition is for --format parquet"
    if request.output is None:
        return "--format parquet writes tables into a folder: name it with -o"
    if name is None:
        return "standard input has no name: give one with --partition" if STDIN in request.files else None
    if not name or len(quote(name, safe="")) > MAX_PARTITION:
        return f"--partition: a name of 1 to {MAX_PARTITION} characters is needed"
    return None


def _mistake_in_outputs(request: Request) -> str | None:
    inputs = [*request.files, *_log_paths(request)]
    for wrong in overwriting({"--output": request.output, "-w": request.write}, inputs):
        return wrong
    if request.write is not None and str(request.write) == STDIN:
        return "-w: a capture is written to a file, not to standard output"
    if request.write is not None and request.write == request.output:
        return f"{request.write}: --output and -w can't both be written there"
    return None


def mistake_in_filter(request: Request, chosen: Filter | None) -> str | None:
    if chosen is None:
        return None
    if request.roundtrip:
        return "--roundtrip looks at every message: no -f with it"
    if request.streams and chosen.late:
        return f"-f: {' and '.join(chosen.late)} can be told only at the end, not as messages come"
    return None
