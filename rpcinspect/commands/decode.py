"""`rpcinspect decode`: one pass over the captures into the view that was asked for; two where order matters
to a file.
"""

from __future__ import annotations

import io
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import numpy as np
from rich.console import Console

from rpcinspect import exit_codes
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.record import round_trips
from rpcinspect.session.model import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asked for; see `cli.decode` for the meaning of each."""

    files: tuple[str, ...]
    jsonl: bool
    output: Path | None
    message: int | None
    show_all: bool
    stream: bool
    hashes: bool
    tensors: Path | None
    roundtrip: bool
    check: bool
    strict: bool


def run(request: Request) -> int:
    """Decodes and writes; returns the exit code."""
    if request.files.count("-") > 1:
        print("rpcinspect: standard input can be read only once", file=sys.stderr)
        return exit_codes.USAGE
    with ExitStack() as stack:
        twice = request.message is not None or request.tensors is not None
        if twice and "-" in request.files:
            request = replace(request, files=_spool_stdin(request.files, stack))
        output = stack.enter_context(_output(request.output))
        if request.roundtrip:
            return _roundtrip(request, output)
        if request.message is not None:
            return _message(request, output)
        if request.tensors is not None:
            return _tensors(request, output)
        if request.jsonl:
            return _jsonl(request, output, stack)
        return _table(request, output, stack)


@contextmanager
def _output(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = path.open("wb")
    except OSError as error:
        raise CaptureError(f"{path}: can't be written: {error.strerror}") from error
    with file:
        yield file


def _spool_stdin(files: tuple[str, ...], stack: ExitStack) -> tuple[str, ...]:
    """Standard input as a deleted temporary file that can be opened again."""
    spool = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    shutil.copyfileobj(sys.stdin.buffer, spool)
    spool.flush()
    return tuple(f"/dev/fd/{spool.fileno()}" if name == "-" else name for name in files)


def _spool() -> BinaryIO:
    """A temporary file without a name: nothing is left of it, however we end."""
    return tempfile.TemporaryFile(buffering=0)


def _console(request: Request, output: BinaryIO) -> Console:
    if request.output is None:
        return Console(highlight=False, markup=False, soft_wrap=True)
    text = io.TextIOWrapper(output, encoding="utf-8", write_through=True)
    return Console(file=text, highlight=False, markup=False, soft_wrap=True)


def _verdict(request: Request, session: Session) -> int:
    if request.strict and session.totals.problems:
        return exit_codes.UNREADABLE
    if request.check and any(finding.severity == "error" for finding in session.findings):
        return exit_codes.DIFFERENT
    return exit_codes.OK


def _jsonl(request: Request, output: BinaryIO, stack: ExitStack) -> int:
    from rpcinspect.views.jsonl import JsonLines
    from rpcinspect.views.stream import JsonStream

    with Decoding(request.files, Options(by_completion=request.stream)) as decoding:
        if request.stream:
            stream = JsonStream(decoding, hashes=request.hashes)
            interrupted = _live(decoding, lambda record: output.write(stream.line(record)), output)
            output.write(stream.rest(decoding.session))
            return exit_codes.INTERRUPTED if interrupted else _verdict(request, decoding.session)
        spool = stack.enter_context(_spool())
        view = JsonLines(spool, decoding.bytes, hashes=request.hashes)
        for record in decoding.records():
            view.feed(record)
        for piece in view.finish(decoding.session):
            output.write(piece)
        _say_nothing_found(decoding.session)
        return _verdict(request, decoding.session)


def _table(request: Request, output: BinaryIO, stack: ExitStack) -> int:
    from rpcinspect.views.stream import TableStream
    from rpcinspect.views.table import MessageTable, summary

    console = _console(request, output)
    live = request.stream or "-" in request.files
    with Decoding(request.files, Options(by_completion=live)) as decoding:
        interrupted = False
        if live:
            stream = TableStream(decoding, console, control=request.show_all)
            interrupted = _live(decoding, stream.show, None)
        else:
            spool = stack.enter_context(_spool())
            view = MessageTable(spool, control=request.show_all)
            for record in decoding.records():
                view.feed(record)
            for line in view.finish(decoding.session, console):
                console.print(line)
        session = decoding.session
        control = int(np.count_nonzero(np.frombuffer(session.messages.control, dtype=np.int8)))
        console.print(summary(session, 0 if request.show_all else control))
        return exit_codes.INTERRUPTED if interrupted else _verdict(request, session)


def _live(decoding: Decoding, show: object, output: BinaryIO | None) -> bool:
    """Shows records as they come; Ctrl-C ends the reading, not the showing. True if it was pressed."""
    assert callable(show)
    pressed = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        decoding.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        for record in decoding.records():
            show(record)
            if output is not None:
                output.flush()
    finally:
        signal.signal(signal.SIGINT, before)
    return pressed


def _say_nothing_found(session: Session) -> None:
    if session.totals.messages == 0:
        reasons = [finding.text for finding in session.findings if finding.code == "invisible-transport"]
        print(f"rpcinspect: no RPC messages. {' '.join(reasons)}".rstrip(), file=sys.stderr)


def _roundtrip(request: Request, output: BinaryIO) -> int:
    """Encodes everything again and compares bytes."""
    console = _console(request, output)
    total = same = cut = 0
    with Decoding(request.files, Options(forms=True)) as decoding:
        for record in decoding.records():
            if record.tp.payload_missing is not None:
                cut += 1
                continue
            total += 1
            if round_trips(record):
                same += 1
            else:
                location = record.location
                console.print(
                    f"differs: message at packet {location.packet}, {location.flow} +{location.offset}"
                )
        share = 100 * same / total if total else 100.0
        console.print(f"{same:,} of {total:,} messages came out byte for byte ({share:.4g} %)")
        if cut:
            console.print(f"{cut:,} messages were not captured whole and were left out")
        verdict = _verdict(request, decoding.session)
    return verdict if same == total else exit_codes.DIFFERENT


def _find(request: Request, index: int) -> tuple[Session, int] | None:
    """First pass: the session, and the row of a message in the order of completion."""
    with Decoding(request.files) as decoding:
        for _ in decoding.records():
            pass
        session = decoding.session
    if index >= session.totals.messages:
        return None
    return session, int(session.order[index])


def _message(request: Request, output: BinaryIO) -> int:
    from rpcinspect.views.detail import detail
    from rpcinspect.views.jsonl import message_line

    assert request.message is not None
    found = _find(request, request.message)
    if found is None:
        print(f"rpcinspect: there is no message {request.message}", file=sys.stderr)
        return exit_codes.USAGE
    session, row = found
    with Decoding(request.files) as decoding:
        record = next(r for r in decoding.records() if r.row == row)
        if request.jsonl:
            output.write(message_line(record, session, decoding.bytes, hashes=request.hashes))
        else:
            _console(request, output).print(detail(record, session, decoding.bytes))
    return _verdict(request, session)


def _tensors(request: Request, output: BinaryIO) -> int:
    from rpcinspect.views.safetensors import TensorWriter

    assert request.tensors is not None
    with Decoding(request.files) as decoding:
        for _ in decoding.records():
            pass
        session = decoding.session
    writer = TensorWriter(request.tensors, session)
    with Decoding(request.files) as decoding:
        for record in decoding.records():
            writer.feed(record, decoding.bytes)
    count, size = writer.finish()
    _console(request, output).print(f"{count:,} tensors, {size:,} bytes, in {request.tensors}")
    return _verdict(request, session)
