"""`rpcinspect decode`: one pass over the captures into the view that was asked for; two where a message's
index must be known before the message is shown.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from rich.text import Text

from rpcinspect import exit_codes
from rpcinspect.capture import Live, Reading
from rpcinspect.commands.arguments import wrong_reading
from rpcinspect.commands.interrupt import Interrupt, ends_reading
from rpcinspect.commands.output import open_console, open_output, overwritten_input, say, writing
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.record import RpcRecord, round_trips
from rpcinspect.session.model import Session
from rpcinspect.views.phrases import printable, printable_json

STDIN = "-"
DRAWINGS = ("dot", "mermaid")
"""Formats of an autograd graph."""
ABRIDGED = frozenset({"latency", "profile", "rrefs"})
"""Questions whose answers leave something out for which there is `--all`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asked for; see `cli.decode` for the meaning of each."""

    files: tuple[str, ...]
    format: str = "table"
    output: Path | None = None
    message: int | None = None
    show_all: bool = False
    stream: bool = False
    hashes: bool = True
    tensors: Path | None = None
    roundtrip: bool = False
    questions: tuple[str, ...] = ()
    """What is asked of the whole run, by the options' names; more than one is a mistake."""
    graph: str | None = None
    """The context of `--graph`."""
    check: bool = False
    strict: bool = False
    reader: str = "auto"
    tshark_options: tuple[str, ...] = ()
    interface: str | None = None
    capture_filter: str | None = None
    stdin: str = STDIN
    """Where standard input can be read, more than once if it was copied to a file."""

    @property
    def jsonl(self) -> bool:
        """One JSON object per line."""
        return self.format == "jsonl"

    @property
    def live(self) -> bool:
        """Whether Ctrl-C ends the input, not the program."""
        return self.stream or STDIN in self.files or self.interface is not None

    def decoding(self, options: Options | None = None) -> Decoding:
        """Opens the inputs."""
        reading = Reading(
            reader=self.reader, preferences=self.tshark_options, capture_filter=self.capture_filter
        )
        inputs = self.files if self.interface is None else (Live(self.interface),)
        return Decoding(inputs, replace(options or Options(), reading=reading))


class View(Protocol):
    """What takes records as they become complete."""

    def feed(self, record: RpcRecord) -> None:
        """Takes the next one."""


def run(request: Request) -> int:
    """Decodes and writes; returns the exit code."""
    mistake = _mistake(request)
    if mistake is not None:
        say(mistake)
        return exit_codes.USAGE
    with ExitStack() as stack:
        if request.message is not None or request.tensors is not None:
            request = _readable_twice(request, stack)
        if request.roundtrip:
            return _roundtrip(request, stack)
        if request.questions:
            return _question(request, stack)
        if request.message is not None:
            return _message(request, stack)
        if request.tensors is not None:
            return _tensors(request, stack)
        if request.jsonl:
            return _jsonl(request, stack)
        return _table(request, stack)


def _mistake(request: Request) -> str | None:
    """What is wrong with the combination of options, in one line."""
    if request.files.count(STDIN) > 1:
        return "standard input can be read only once"
    inputs = _mistake_in_inputs(request)
    if inputs is not None:
        return inputs
    message, tensors = request.message is not None, request.tensors is not None
    named = {
        "--stream": request.stream,
        "--message": message,
        "--tensors": tensors,
        "--roundtrip": request.roundtrip,
    }
    wanted = [name for name, given in named.items() if given]
    wanted += [f"--{name}" for name in request.questions]
    if len(wanted) > 1:
        return f"{' and '.join(wanted)} can't be used together"
    if request.roundtrip and request.jsonl:
        return "--roundtrip has no jsonl form"
    if request.format in DRAWINGS and request.questions != ("graph",):
        return f"--format {request.format} is for --graph"
    if request.show_all and (request.jsonl or tensors or request.roundtrip or _complete(request)):
        return "--all is for the table and for --message: everything else is complete anyway"
    if not request.hashes and not request.jsonl:
        return "--no-hash is for --format jsonl"
    overwritten = overwritten_input(request.output, request.files)
    return None if overwritten is None else f"{overwritten}: is an input, --output would overwrite it"


def _complete(request: Request) -> bool:
    """Whether a question's answer leaves nothing out that `--all` could add."""
    return bool(request.questions) and not ABRIDGED.issuperset(request.questions)


def _mistake_in_inputs(request: Request) -> str | None:
    if request.interface is None:
        if not request.files:
            return "no capture is named: give FILE, - for standard input, or --live INTERFACE"
        if request.capture_filter is not None:
            return "--capture-filter is for --live"
        return next(wrong_reading(request.reader, request.tshark_options), None)
    if request.files:
        return "--live captures by itself: no FILE with it"
    if request.message is not None or request.tensors is not None or request.roundtrip or request.questions:
        return "--live can't be read twice: capture to a file first (tcpdump -w), then decode that"
    if request.reader == "tshark" or request.tshark_options:
        return "--live is read natively, as it comes: no --reader tshark and no --tshark-option with it"
    return None


def _readable_twice(request: Request, stack: ExitStack) -> Request:
    """The request with standard input copied to a deleted temporary file that can be opened again."""
    if STDIN not in request.files:
        return request
    spool = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    with writing(Path(tempfile.gettempdir())):
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.seek(0)
    path = f"/dev/fd/{spool.fileno()}"
    files = tuple(path if name == STDIN else name for name in request.files)
    return replace(request, files=files, stdin=path)


def _spool(stack: ExitStack) -> BinaryIO:
    """A temporary file without a name: nothing is left of it, however we end."""
    with writing(Path(tempfile.gettempdir())):
        return stack.enter_context(tempfile.TemporaryFile(buffering=0))


def _take(decoding: Decoding, views: list[View]) -> None:
    """Feeds every record to views that keep what they make in temporary files."""
    with writing(Path(tempfile.gettempdir())):
        for record in decoding.records():
            for view in views:
                view.feed(record)


def _read(request: Request) -> Session:
    """A first pass, for the session alone."""
    with request.decoding() as decoding:
        _take(decoding, [])
        return _named(decoding.session, request)


def _named(session: Session, request: Request) -> Session:
    """The session with standard input called so again."""
    session.captures = tuple(
        replace(capture, path=STDIN) if capture.path == request.stdin else capture
        for capture in session.captures
    )
    return session


def _interrupt(request: Request, decoding: Decoding) -> AbstractContextManager[Interrupt]:
    return ends_reading(decoding) if request.live else nullcontext(Interrupt())


def _verdict(request: Request, session: Session, interrupt: Interrupt | None = None) -> int:
    if interrupt is not None and interrupt.pressed:
        return exit_codes.INTERRUPTED
    if request.strict and session.totals.problems:
        return exit_codes.UNREADABLE
    if request.check and any(finding.severity == "error" for finding in session.findings):
        return exit_codes.DIFFERENT
    return exit_codes.OK


def _jsonl(request: Request, stack: ExitStack) -> int:
    from rpcinspect.views.jsonl import JsonLines
    from rpcinspect.views.stream import JsonStream

    with request.decoding(Options(by_completion=request.stream)) as decoding:
        output = stack.enter_context(open_output(request.output))
        with _interrupt(request, decoding) as interrupt:
            if request.stream:
                stream = JsonStream(decoding, hashes=request.hashes)
                for record in decoding.records():
                    output.write(printable_json(stream.line(record)))
                    output.flush()
            else:
                view = JsonLines(_spool(stack), decoding.bytes, hashes=request.hashes)
                _take(decoding, [view])
        session = decoding.session
        for piece in (stream.rest(session),) if request.stream else view.finish(session):
            output.write(printable_json(piece))
        _say_if_empty(session)
        _say_if_unread(decoding)
        return _verdict(request, session, interrupt)


def _say_if_empty(session: Session) -> None:
    from rpcinspect.views.empty import empty_line

    reason = empty_line(session)
    if reason is not None:
        say(reason)


def _say_if_unread(decoding: Decoding) -> None:
    """Packets of link types that the native reader lacks look like none at all."""
    unread = decoding.unread_link_types
    if unread:
        say(f"no packet could be read: {', '.join(unread)}; try --reader tshark")


def _table(request: Request, stack: ExitStack) -> int:
    from rpcinspect.views.stream import TableStream
    from rpcinspect.views.summary import show_summary
    from rpcinspect.views.table import MessageTable

    live = request.live
    with request.decoding(Options(by_completion=live)) as decoding:
        console = stack.enter_context(open_console(request.output))
        with _interrupt(request, decoding) as interrupt:
            if live:
                stream = TableStream(decoding, console, control=request.show_all)
                for record in decoding.records():
                    stream.show(record)
            else:
                view = MessageTable(_spool(stack), control=request.show_all)
                _take(decoding, [view])
        session = decoding.session
        if not live:
            view.show(session, console)
        control = int(np.count_nonzero(np.frombuffer(session.messages.control, dtype=np.int8)))
        show_summary(session, console, hidden_control=0 if request.show_all else control)
        _say_if_unread(decoding)
        return _verdict(request, session, interrupt)


def _roundtrip(request: Request, stack: ExitStack) -> int:
    """Encodes everything again and compares bytes."""
    total = same = cut = 0
    with request.decoding(Options(forms=True)) as decoding:
        console = stack.enter_context(open_console(request.output))
        for record in decoding.records():
            if record.tp.payload_missing is not None:
                cut += 1
                continue
            total += 1
            if round_trips(record):
                same += 1
            else:
                where = record.location
                console.print(f"differs: message at packet {where.packet}, {where.flow} +{where.offset}")
        share = 100 * same / total if total else 100.0
        console.print(f"{same:,} of {total:,} messages came out byte for byte ({share:.4g} %)")
        if cut:
            console.print(f"{cut:,} messages were not captured whole and were left out")
        verdict = _verdict(request, decoding.session)
    return verdict if same == total else exit_codes.DIFFERENT


def _question(request: Request, stack: ExitStack) -> int:
    """Answers a question about the whole run."""
    from rpcinspect.commands.questions import answer

    decoding = stack.enter_context(request.decoding())
    with _interrupt(request, decoding) as interrupt:
        code = answer(request, decoding, stack)
    _say_if_unread(decoding)
    return _verdict(request, decoding.session, interrupt) if code is None else code


def _message(request: Request, stack: ExitStack) -> int:
    """Shows one message: a first pass finds out which it is, a second decodes it again."""
    from rpcinspect.views.detail import detail
    from rpcinspect.views.jsonl import message_line

    assert request.message is not None
    session = _read(request)
    if request.message >= session.totals.messages:
        last = session.totals.messages - 1
        others = f"the last is {last}" if last >= 0 else "nor any other"
        say(f"there is no message {request.message}, {others}")
        return exit_codes.USAGE
    row = int(session.order[request.message])
    with request.decoding() as decoding:
        record = next((r for r in decoding.records() if r.row == row), None)
        if record is None:
            raise CaptureError(f"{request.files[0]}: it has become shorter while it was read")
        if request.jsonl:
            line = message_line(record, session, decoding.bytes, hashes=request.hashes)
            stack.enter_context(open_output(request.output)).write(printable_json(line))
        else:
            console = stack.enter_context(open_console(request.output))
            for part in detail(record, session, decoding.bytes, every_byte=request.show_all):
                console.print(part)
    return _verdict(request, session)


def _tensors(request: Request, stack: ExitStack) -> int:
    """Writes tensors, named by the index of their message; in the same second pass JSON, where asked for."""
    from rpcinspect.views.jsonl import JsonLines
    from rpcinspect.views.safetensors import TensorWriter

    assert request.tensors is not None
    session = _read(request)
    with request.decoding() as decoding:
        writer = TensorWriter(request.tensors, session, decoding.bytes)
        if request.jsonl:
            output = stack.enter_context(open_output(request.output))
            view = JsonLines(_spool(stack), decoding.bytes, hashes=request.hashes)
            _take(decoding, [writer, view])
            for piece in view.finish(_named(decoding.session, request)):
                output.write(printable_json(piece))
        else:
            _take(decoding, [writer])
    count, size = writer.finish()
    told = f"{count:,} tensors, {size:,} bytes, in {request.tensors}"
    if request.jsonl:
        say(told)
    else:
        stack.enter_context(open_console(request.output)).print(Text(printable(told)))
    return _verdict(request, session)
