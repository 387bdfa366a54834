"""Options that several commands have, each written down once, and what becomes of their values.

In: values from the command line. Out: classes of options, of which those of commands are made.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from msgspec import Struct

if TYPE_CHECKING:
    from rpcinspect.capture import Live, Reading
    from rpcinspect.filter.selection import Filter
    from rpcinspect.pipeline import Options
    from rpcinspect.run.run import RunModel
    from rpcinspect.views.questions.question import Question

STDIN = "-"


def below(title: str) -> dict[str, str]:
    """Returns what puts options under a title of their own in the help."""
    return {"rich_help_panel": title}


READING = below("Reading captures")
ANSWERED = {
    0: "answered",
    2: "wrong options, or the output can't be written",
    3: "not readable as a capture",
    130: "interrupted; of standard input, what was read is shown",
}
"""Exit codes of commands that only show something."""
WRITES = {
    "output": "--output",
    "write": "-w",
    "shrink": "--shrink",
    "record": "--record",
    "junit": "--junit",
}
"""Fields of commands that name a file to write → their options."""


def option(spec: str, text: str, **how: Any) -> Any:
    """Returns typer's option of `-w --write PCAP`, its names and what its value is called, with its help."""
    words = spec.split()
    names = [word for word in words if word.startswith("-")]
    return typer.Option(*names, metavar=" ".join(words[len(names) :]) or None, help=text, **how)


def argument(spec: str, text: str) -> Any:
    """Returns typer's argument, that has no option's name."""
    return typer.Argument(metavar=spec, help=text, show_default=False)


def _output(path: Path | None) -> Path | None:
    """`-` is standard output, as it is standard input among the files."""
    return None if path == Path("-") else path


FilesArgument = Annotated[
    list[str],
    argument("FILE...", "Captures, read as one session: pcap, pcapng, rpclog, .gz, .zst; - is stdin."),
]
OutputOption = Annotated[Path | None, option("-o --output", "Write to this file.", callback=_output)]
FormatOption = Annotated[Literal["table", "jsonl"], option("--format", "Write a table, or JSON lines.")]
AllOption = Annotated[bool, option("-a --all", "Show housekeeping and all rows, as JSON always does.")]
CheckOption = Annotated[bool, option("--check", "Exit with 1 if there is a finding of severity error.")]
ContextOption = Annotated[
    str | None, option("--context ID", "Select an autograd context: id or CREATOR:COUNTER.")
]
NoHashOption = Annotated[bool, option("--no-hash", "Skip the hashes of tensors.")]
JobsOption = Annotated[
    int | None,
    option("--jobs N", "JSON: hash large tensors on N cores. Default: all there are, at most 8.", min=1),
]
RedactOption = Annotated[
    bool, option("--redact", "Replace tensor values and strings; keep structure and sizes.")
]
RedactSeedOption = Annotated[
    str | None, option("--redact-seed SECRET", "Use one secret for all captures to be compared.")
]
ToleranceOption = Annotated[bool, option("--tolerance", "Use the tolerances of torch.testing.")]
RtolOption = Annotated[float | None, option("--rtol X", "Accept this relative tolerance.")]
AtolOption = Annotated[float | None, option("--atol X", "Accept this absolute tolerance.")]


class CommandClass(Struct, frozen=True, kw_only=True):
    """Declares what each class of a command has beside its options: examples and exit codes; its docstring is
    the help of the command."""

    EXAMPLES: ClassVar[Sequence[str]]
    """Command lines."""
    EXITS: ClassVar[Mapping[int, str]]
    """What the exit codes mean."""
    SETTINGS: ClassVar[Mapping[str, Any]] = {}
    """How typer reads the command line, if not as usual."""

    def mistakes(self) -> Iterator[str]:
        """Yields what is wrong with the options, each in one line."""
        yield from ()

    def run(self) -> int:
        """Does what the command is for; returns the exit code."""
        raise NotImplementedError


class CaptureOptions(CommandClass, frozen=True, kw_only=True):
    """Which captures are read, and how."""

    EXITS: ClassVar[Mapping[int, str]] = ANSWERED

    files: FilesArgument
    reader: Annotated[
        Literal["auto", "native", "tshark", "pyshark"],
        option("--reader", "Choose the reader; auto: native, or tshark where needed.", **READING),
    ] = "auto"
    tshark_options: Annotated[
        list[str],
        option("--tshark-option NAME:VALUE", "Set a tshark preference; repeatable.", **READING),
    ] = []
    worker_names: Annotated[
        list[str],
        option("--worker ID=NAME", "Name a worker that the capture knows by its id only.", **READING),
    ] = []
    unpack_limit: Annotated[
        str | None,
        option("--unpack-limit SIZE", "Limit the unpacked size; none: no limit. Default: 100GB.", **READING),
    ] = None

    @property
    def live(self) -> bool:
        """Whether the input grows while it is read: Ctrl-C ends it, and what was read is shown."""
        return STDIN in self.files

    def sources(self) -> "list[str | Live]":
        """Returns what is read."""
        return list(self.files)

    def reading(self) -> "Reading":
        """Returns how captures are read."""
        from rpcinspect.capture import Reading
        from rpcinspect.cli.arguments import unpacking

        return Reading(
            reader=self.reader,
            preferences=tuple(self.tshark_options),
            unpacking=unpacking(self.unpack_limit),
        )

    def decoding_options(self, **how: Any) -> "Options":
        """Returns the same for the pipeline, with these of its options beside."""
        from rpcinspect.cli.arguments import worker_names
        from rpcinspect.pipeline import Options

        return Options(reading=self.reading(), names=worker_names(self.worker_names), **how)

    def outputs(self) -> Mapping[str, Path | None]:
        """Returns the files that are written, by the options that name them."""
        return {option: getattr(self, field, None) for field, option in WRITES.items()}

    def inputs(self) -> list[str]:
        """Returns the files that must not be written over."""
        return self.files

    def mistakes(self) -> Iterator[str]:
        from rpcinspect.cli.output import overwriting, written_twice

        if self.files.count(STDIN) > 1:
            yield "standard input can be read only once"
        if self.tshark_options and self.reader == "native":
            yield "--tshark-option is for tshark, not for --reader native"
        yield from overwriting(self.outputs(), self.inputs())
        yield from written_twice(self.outputs())


class ShownOptions(CaptureOptions, frozen=True, kw_only=True):
    """What of the captures is shown, and where."""

    filter: Annotated[
        str | None, option("-f --filter EXPR", "Show only what matches, such as 'error or latency > 50ms'.")
    ] = None
    output: OutputOption = None

    def shows_why_empty(self) -> bool:
        """Whether its output itself says to people why a capture has no messages."""
        return False

    def chosen(self) -> "Filter | None":
        """Returns the filter. Raises `FilterError` for what is none."""
        if self.filter is None:
            return None
        from rpcinspect.filter.grammar import parse  # it takes its time to load
        from rpcinspect.filter.selection import Filter

        return Filter(parse(self.filter), self.filter)


class QuestionOptions(ShownOptions, frozen=True, kw_only=True):
    """A question about a whole run."""

    format: Annotated[
        Literal["table", "jsonl", "json"], option("--format", "Write a table, JSON lines, or one document.")
    ] = "table"

    def question(self) -> "Question":
        """Returns what is asked, by the name of the command."""
        from rpcinspect.views.questions.all import QUESTIONS

        return QUESTIONS[type(self).__name__.removesuffix("Command").lower()]

    def finish(self, run: "RunModel") -> bool:
        """Does what is left once the answer is written; returns whether the exit code is 1."""
        return False

    def run(self) -> int:
        """Answers; returns the exit code."""
        from rpcinspect.cli.answer import answer

        return answer(self)


class LogOptions(QuestionOptions, frozen=True, kw_only=True):
    """Options for captures, and for text logs that workers wrote."""

    worker_logs: Annotated[
        list[str],
        option("--worker-log [NAME=]FILE", "Merge this worker's text log; repeatable."),
    ] = []
    log_zone: Annotated[
        str | None, option("--log-zone ZONE", "Give the time zone of these logs, such as UTC or -08:00.")
    ] = None

    def decoding_options(self, **how: Any) -> "Options":
        if not self.worker_logs:
            return super().decoding_options(**how)
        from rpcinspect.cli.worker_logs import read_worker_logs, read_zone

        zone_s = None if self.log_zone is None else read_zone(self.log_zone)
        logs = read_worker_logs(self.worker_logs)
        return super().decoding_options(worker_logs=logs, log_zone_s=zone_s, **how)

    def inputs(self) -> list[str]:
        if not self.worker_logs:
            return self.files
        from rpcinspect.cli.worker_logs import read_named

        return [*self.files, *(read_named(log)[1] for log in self.worker_logs)]

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if self.log_zone is not None and not self.worker_logs:
            yield "--log-zone is for --worker-log"
        if self.worker_logs and self.live:
            yield "--worker-log joins a capture that is read to its end: no -, --stream or --live with it"
