"""`rpcinspect decode`: one pass over the captures into the view that was asked for; two where a message's
index must be known before the message is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from rpcinspect import exit_codes
from rpcinspect.commands.collector import imports_are_over
from rpcinspect.commands.decode_request import Request, mistake, mistake_in_filter
from rpcinspect.commands.interrupt import Interrupt, ends_reading, held_back
from rpcinspect.commands.output import open_console, open_output, say, say_block, say_if_empty, tell
from rpcinspect.commands.passes import named, read, readable_twice, spool, take, take_at_once, take_chosen
from rpcinspect.commands.progress import reading_bar
from rpcinspect.errors import CaptureError, FilterError
from rpcinspect.fields.phrases import counted, printable_json
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.record import RpcRecord, round_trips
from rpcinspect.session.model import Session

if TYPE_CHECKING:
    from rpcinspect.filter.selection import Filter
    from rpcinspect.filter.shown import Shown
    from rpcinspect.views.jsonl.lines import JsonLines


def run(request: Request) -> int:
    """Decodes and writes; returns the exit code."""
    imports_are_over()
    if request.fields:
        return _fields(request)
    chosen = None
    if request.filter is not None:
        from rpcinspect.commands.filtering import pointed, read_filter  # its parser takes its time to load

        try:
            chosen = read_filter(request.filter)
        except FilterError as error:
            say_block(pointed(error))
            return exit_codes.USAGE
    wrong = mistake(request) or mistake_in_filter(request, chosen)
    if wrong is not None:
        say(wrong)
        return exit_codes.USAGE
    if request.worker_logs:
        from rpcinspect.commands.worker_logs import read_worker_logs

        request = replace(request, logs_read=read_worker_logs(request.worker_logs))
    with ExitStack() as stack:
        if not request.streams:
            request = replace(request, progress=stack.enter_context(reading_bar()))
        if request.parquet or request.log or request.twice:
            request = readable_twice(request, stack)
        if request.roundtrip:
            return _roundtrip(request, stack)
        if request.calls:
            return _calls(request, chosen, stack)
        if request.questions:
            return _whole_run(request, chosen, stack)
        if request.parquet:
            return _parquet(request, chosen, stack)
        if request.log:
            return _log(request, chosen, stack)
        if request.exports:
            return _whole_run(request, chosen, stack)
        if request.message is not None:
            return _message(request, chosen, stack)
        if request.tensors is not None:
            return _tensors(request, chosen, stack)
        if request.write is not None:
            return _write(request, request.write, chosen, stack)
        if request.json:
            return _json(request, chosen, stack)
        return _table(request, chosen, stack)


def _fields(request: Request) -> int:
    from rpcinspect.filter.listing import field_lines

    tell(field_lines(), request.output)
    return exit_codes.OK


def _key(request: Request) -> bytes | None:
    """The key of the redaction; None without --redact."""
    if not request.redact:
        return None
    from rpcinspect.commands.redacting import key_of

    return key_of(request.redact_seed)


def _interrupt(request: Request, decoding: Decoding) -> AbstractContextManager[Interrupt]:
    return ends_reading(decoding) if request.live else nullcontext(Interrupt())


def _verdict(request: Request, session: Session, interrupt: Interrupt | None = None) -> int:
    if interrupt is not None and interrupt.pressed and request.interface is None:  # which has no other end
        return exit_codes.INTERRUPTED
    if request.strict and session.totals.problems:
        return exit_codes.UNREADABLE
    if request.check and any(finding.severity == "error" for finding in session.findings):
        return exit_codes.DIFFERENT
    return exit_codes.OK


def _json(request: Request, chosen: Filter | None, stack: ExitStack) -> int:
    from rpcinspect.views.jsonl.lines import JsonLines

    with request.decoding(Options(by_completion=request.stream)) as decoding:
        output = stack.enter_context(open_output(request.output, grows=request.stream))
        with _interrupt(request, decoding) as interrupt:
            if request.stream:
                from rpcinspect.views.stream import JsonStream

                stream = JsonStream(decoding, hashes=request.hashes)

                def write(record: RpcRecord) -> None:
                    output.write(printable_json(stream.line(record)))
                    output.flush()

                shown = take_at_once(decoding, write, chosen)
            else:
                view = JsonLines(spool(stack), decoding.bytes, hashes=request.hashes)
                shown = take_chosen(decoding, [view], chosen)
        session = decoding.session
        if request.stream:
            output.write(printable_json(stream.rest(session, shown)))
        else:
            _write_session(view, session, shown, request, output)
        say_if_empty(session)
        _say_what_is_unread(decoding)
        return _verdict(request, session, interrupt)


def _write_session(
    view: JsonLines, session: Session, shown: Shown | None, request: Request, output: BinaryIO
) -> None:
    """A session with the messages that the view was fed."""
    from rpcinspect.views.jsonl.document import session_pieces

    document = request.format == "json"
    pieces = session_pieces(view, session, shown) if document else view.finish(session, shown)
    output.writelines(map(printable_json, pieces))


def _write_messages(messages: Iterable[bytes], request: Request, output: BinaryIO) -> None:
    """Lines of messages alone."""
    from rpcinspect.views.jsonl.document import message_pieces

    output.writelines(map(printable_json, message_pieces(messages) if request.format == "json" else messages))


def _say_what_is_unread(decoding: Decoding) -> None:
    """Packets of link types that the native reader lacks look like none at all, and what was not read is in
    no view."""
    for line in decoding.ended_early:
        say(line)
    unread = decoding.unread_link_types
    if unread:
        say(f"no packet could be read: {', '.join(unread)}; try --reader tshark")


def _table(request: Request, chosen: Filter | None, stack: ExitStack) -> int:
    from rpcinspect.views.text.summary import show_summary
    from rpcinspect.views.text.table import MessageTable

    live = request.live
    show_all = request.show_all or chosen is not None  # who asks for something, wants all of it
    with request.decoding(Options(by_completion=live)) as decoding:
        console = stack.enter_context(open_console(request.output, grows=live))
        with _interrupt(request, decoding) as interrupt:
            if live:
                from rpcinspect.views.stream import TableStream

                stream = TableStream(decoding, console, show_all=show_all)
                shown = take_at_once(decoding, stream.show, chosen)
            else:
                view = MessageTable(spool(stack), show_all=show_all)
                shown = take_chosen(decoding, [view], chosen)
        session = decoding.session
        if not live:
            view.show(session, console, shown)
        hidden = 0 if show_all else session.messages.housekeeping().count(1)
        show_summary(session, console, hidden=hidden, shown=shown)
        _say_what_is_unread(decoding)
        return _verdict(request, session, interrupt)


def _roundtrip(request: Request, stack: ExitStack) -> int:
    """Encodes everything again and compares bytes."""
    total = cut = 0
    differing = []
    with request.decoding() as decoding:
        console = stack.enter_context(open_console(request.output))
        for record in decoding.records():
            if record.tp.payload_missing is not None:
                cut += 1
                continue
            total += 1
            if not round_trips(record):
                differing.append(record.location)
        same = total - len(differing)
        for where in differing:
            console.print(f"differs: message at packet {where.packet}, {where.flow} +{where.offset}")
        share = 100 * same / total if total else 100.0
        console.print(f"{same:,} of {total:,} messages came out byte for byte ({share:.4g} %)")
        if cut:
            console.print(f"{cut:,} messages were not captured whole and were left out")
        verdict = _verdict(request, decoding.session)
    return verdict if same == total else exit_codes.DIFFERENT


def _whole_run(request: Request, chosen: Filter | None, stack: ExitStack) -> int:
    """Answers a question about the whole run, or writes it for another program."""
    from rpcinspect.commands.questions import answer, export

    act = answer if request.questions else export
    decoding = stack.enter_context(request.decoding())
    with _interrupt(request, decoding) as interrupt:
        code = act(request, decoding, chosen, stack)
    _say_what_is_unread(decoding)
    return _verdict(request, decoding.session, interrupt) if code is None else code


def _calls(request: Request, chosen: Filter | None, stack: ExitStack) -> int:
    """Shows requests with their answers."""
    from rpcinspect.commands.calls import show

    decoding = stack.enter_context(request.decoding())
    with _interrupt(request, decoding) as interrupt:
        show(request, decoding, chosen, stack)
    _say_what_is_unread(decoding)
    return _verdict(request, decoding.session, interrupt)


def _parquet(request: Request, chosen: Filter | None, stack: ExitStack) -> int:
    """Writes tables: a first pass for the session, a second for its messages."""
    from rpcinspect.commands.lake import fill, open_lake

    lake = stack.enter_context(open_lake(request))
    session, shown = read(request, chosen)
    with request.decoding() as decoding:
        told = fill(lake, request, session, shown, decoding)
        _say_what_is_unread(decoding)
    say_if_empty(session)
    tell([told], None)
    return _verdict(request, session)


def _log(request: Request, chosen: Filter | None, stack: ExitStack) -> int:
    """Writes a log: a first pass for the session, a second for its messages."""
    from rpcinspect.commands.redacting import save_log

    session, shown = read(request, chosen)
    with request.decoding() as decoding:
        output = stack.enter_context(open_output(request.output, private=True))
        say(save_log(output, session, shown, decoding, _key(request)))
        _say_what_is_unread(decoding)
    say_if_empty(session)
    return _verdict(request, session)


def _message(request: Request, chosen: Filter | None, stack: ExitStack) -> int:
    """Shows one message: a first pass finds out which it is, a second decodes it again."""
    from rpcinspect.views.jsonl.lines import message_line
    from rpcinspect.views.text.detail import detail

    assert request.message is not None
    session, shown = read(request, chosen)
    if request.message >= session.totals.messages:
        last = session.totals.messages - 1
        others = f"the last is {last}" if last >= 0 else "nor any other"
        say(f"there is no message {request.message}, {others}")
        return exit_codes.USAGE
    row = int(session.order[request.message])
    if shown is not None and not shown.rows[row]:
        say(f"message {request.message} does not match {shown.text}")
        if request.json:
            _write_messages((), request, stack.enter_context(open_output(request.output)))
        return _verdict(request, session)
    with request.decoding() as decoding:
        record = next((r for r in decoding.records() if r.row == row), None)
        if record is None:
            raise CaptureError(f"{request.files[0]}: it has become shorter while it was read")
        if request.json:
            line = message_line(record, session, decoding.bytes, hashes=request.hashes)
            _write_messages((line,), request, stack.enter_context(open_output(request.output)))
        else:
            console = stack.enter_context(open_console(request.output))
            for part in detail(record, session, decoding.bytes, every_byte=request.show_all):
                console.print(part)
    return _verdict(request, session)


def _tensors(request: Request, chosen: Filter | None, stack: ExitStack) -> int:
    """Writes tensors, named by the index of their message; in the same second pass JSON, where asked for."""
    from rpcinspect.export.safetensors import TensorWriter
    from rpcinspect.views.jsonl.lines import JsonLines

    assert request.tensors is not None
    session, shown = read(request, chosen)
    wanted = None if shown is None else (lambda record: bool(shown.rows[record.row]))
    with request.decoding() as decoding, TensorWriter(request.tensors, session, decoding.bytes) as writer:
        if request.json:
            output = stack.enter_context(open_output(request.output))
            view = JsonLines(spool(stack), decoding.bytes, hashes=request.hashes)
            take(decoding, [writer, view], wanted)
            _write_session(view, named(decoding.session, request), shown, request, output)
        else:
            take(decoding, [writer], wanted)
        with held_back():
            count, size = writer.finish()
        _say_what_is_unread(decoding)
    told = f"{counted(count, 'tensor')}, {counted(size, 'byte')}, in {request.tensors}"
    _tell(told, request)
    return _verdict(request, session)


def _tell(line: str, request: Request) -> None:
    """What was written elsewhere; on stderr where JSON is the output."""
    if request.json:
        say(line)
    else:
        tell([line], request.output)


def _write(request: Request, path: Path, chosen: Filter | None, stack: ExitStack) -> int:
    """Saves the messages that the filter picks: a first pass finds them and writes JSON where that is asked
    for, a second takes them.
    """
    from rpcinspect.commands.redacting import save
    from rpcinspect.views.jsonl.lines import JsonLines

    with request.decoding() as decoding:
        view = JsonLines(spool(stack), decoding.bytes, hashes=request.hashes) if request.json else None
        shown = take_chosen(decoding, [] if view is None else [view], chosen)
        session = named(decoding.session, request)
        if view is not None:
            output = stack.enter_context(open_output(request.output))
            _write_session(view, session, shown, request, output)
    with request.decoding() as decoding:
        told = save(path, session, shown, decoding, _key(request))
    say_if_empty(session)
    _tell(told, request)
    return _verdict(request, session)
