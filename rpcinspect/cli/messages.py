"""What `rpcinspect decode` shows: one pass over the captures into the view that was asked for; two where a
message's index must be known before the message is shown.

In: the options of `decode`. Out: a view on standard output or in a file, and the exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rpcinspect import exit_codes
from rpcinspect.cli.collector import imports_are_over
from rpcinspect.cli.cores import usable_cores
from rpcinspect.cli.decode import DecodeCommand
from rpcinspect.cli.inputs import Inputs, say_what_is_unread, take_chosen
from rpcinspect.cli.interrupt import Interrupt
from rpcinspect.cli.output import open_console, open_output, say, say_if_empty, tell, write_json
from rpcinspect.errors import CaptureError
from rpcinspect.fields.phrases import printable_json
from rpcinspect.files.temporary import Temporary
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord, round_trips
from rpcinspect.session.model import Session

if TYPE_CHECKING:
    from rpcinspect.filter.matches import Shown
    from rpcinspect.filter.selection import Filter
    from rpcinspect.views.jsonl.lines import JsonLines

MOST_JOBS = 8
"""Unless somebody asks for more: what is left for one core takes a sixth of the time of hashing."""


def decode(command: DecodeCommand) -> int:
    """Shows what is asked for; returns the exit code."""
    if command.fields:
        return _fields(command)
    chosen = command.chosen()
    with ExitStack() as stack:
        inputs = Inputs(command, stack, twice=command.twice, quiet=command.streams)
        if command.roundtrip:
            return _roundtrip(command, inputs, stack)
        if command.calls:
            return _calls(command, inputs, chosen, stack)
        if command.message is not None:
            return _message(command, command.message, inputs, chosen, stack)
        if command.write is not None:
            return _write(command, command.write, inputs, chosen, stack)
        if command.json:
            return (_json_stream if command.stream else _json)(command, inputs, chosen, stack)
        return _table(command, inputs, chosen, stack)


def _fields(command: DecodeCommand) -> int:
    from rpcinspect.fields.table import field_lines

    imports_are_over()
    tell(field_lines(), command.output)
    return exit_codes.OK


def _verdict(command: DecodeCommand, session: Session, interrupt: Interrupt | None = None) -> int:
    if interrupt is not None and interrupt.pressed and command.interface is None:  # which has no other end
        return exit_codes.INTERRUPTED
    if command.strict and session.totals.problems:
        return exit_codes.UNREADABLE
    if command.check and any(finding.severity == "error" for finding in session.findings):
        return exit_codes.DIFFERENT
    return exit_codes.OK


def _json(command: DecodeCommand, inputs: Inputs, chosen: Filter | None, stack: ExitStack) -> int:
    with inputs.decoding() as decoding, _json_view(command, decoding) as view:
        output = stack.enter_context(open_output(command.output))
        with inputs.ends_by_key(decoding) as interrupt:
            shown = take_chosen(decoding, view.feed, chosen)
        session = decoding.session
        _write_session(view, session, shown, command, output)
        say_if_empty(session)
        say_what_is_unread(decoding)
        return _verdict(command, session, interrupt)


def _json_stream(command: DecodeCommand, inputs: Inputs, chosen: Filter | None, stack: ExitStack) -> int:
    from rpcinspect.views.stream import JsonStream

    with inputs.decoding(by_completion=True) as decoding:
        output = stack.enter_context(open_output(command.output, grows=True))
        stream = JsonStream(decoding, hashes=not command.no_hash)

        def write(record: RpcRecord) -> None:
            output.write(printable_json(stream.line(record)))
            output.flush()

        with inputs.ends_by_key(decoding) as interrupt:
            shown = _take_at_once(decoding, write, chosen)
        session = decoding.session
        output.write(printable_json(stream.rest(session, shown)))
        say_if_empty(session)
        say_what_is_unread(decoding)
        return _verdict(command, session, interrupt)


@contextmanager
def _json_view(command: DecodeCommand, decoding: Decoding) -> Iterator[JsonLines]:
    """Gives a view for JSON; large tensors are hashed on other cores."""
    from rpcinspect.views.jsonl.hashes import HashThreads
    from rpcinspect.views.jsonl.lines import JsonLines

    jobs = command.jobs or min(usable_cores(), MOST_JOBS)
    with HashThreads(decoding.bytes_beside(), jobs) as beside, Temporary() as spool:
        yield JsonLines(spool, decoding.bytes, hashes=not command.no_hash, beside=beside)


def _take_at_once(
    decoding: Decoding, show: Callable[[RpcRecord], None], chosen: Filter | None
) -> Shown | None:
    """Shows what the filter picks as it comes; returns what that was."""
    if chosen is None:
        for record in decoding.records():
            show(record)
        return None
    from rpcinspect.filter.selection import StreamSelection

    selection = StreamSelection(chosen, decoding)
    for record in decoding.records():
        if selection.feed(record):
            show(record)
    return selection.finish(decoding.session)


def _write_session(
    view: JsonLines, session: Session, shown: Shown | None, command: DecodeCommand, output: BinaryIO
) -> None:
    """Writes a session with the messages that the view was fed."""
    if command.format == "json":
        from rpcinspect.views.jsonl.document import session_pieces

        pieces = session_pieces(view, session, shown)
    else:
        pieces = view.finish(session, shown)
    output.writelines(map(printable_json, pieces))


def _table(command: DecodeCommand, inputs: Inputs, chosen: Filter | None, stack: ExitStack) -> int:
    from rpcinspect.views.text.summary import show_summary
    from rpcinspect.views.text.table import MessageTable

    live = command.live
    show_all = command.show_all or chosen is not None  # who asks for something, wants all of it
    with inputs.decoding(by_completion=live) as decoding:
        console = stack.enter_context(open_console(command.output, grows=live))
        with inputs.ends_by_key(decoding) as interrupt:
            if live:
                from rpcinspect.views.stream import TableStream

                stream = TableStream(decoding, console, show_all=show_all)
                shown = _take_at_once(decoding, stream.show, chosen)
            else:
                view = MessageTable(stack.enter_context(Temporary()), show_all=show_all)
                shown = take_chosen(decoding, view.feed, chosen)
        session = decoding.session
        if not live:
            view.show(session, console, shown)
        hidden = 0 if show_all else session.messages.housekeeping().count(1)
        show_summary(session, console, hidden=hidden, shown=shown)
        say_what_is_unread(decoding)
        return _verdict(command, session, interrupt)


def _roundtrip(command: DecodeCommand, inputs: Inputs, stack: ExitStack) -> int:
    """Encodes everything again and compares bytes."""
    total = cut = 0
    differing = []
    with inputs.decoding() as decoding:
        console = stack.enter_context(open_console(command.output))
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
        verdict = _verdict(command, decoding.session)
    return verdict if same == total else exit_codes.DIFFERENT


def _calls(command: DecodeCommand, inputs: Inputs, chosen: Filter | None, stack: ExitStack) -> int:
    """Shows requests with their answers. Messages are read once; what they say waits in a temporary file
    until all are known."""
    from rpcinspect.views.jsonl.calls import CallRows, call_lines
    from rpcinspect.views.jsonl.document import call_pieces
    from rpcinspect.views.text.calls import show_calls

    decoding = stack.enter_context(inputs.decoding())
    with inputs.ends_by_key(decoding) as interrupt:
        view = CallRows(stack.enter_context(Temporary()))
        shown = take_chosen(decoding, view.feed, chosen, of_calls=True)
        session = decoding.session
        say_if_empty(session)
        calls = view.of(session, shown)
        if command.json:
            write = call_pieces if command.format == "json" else call_lines
            output = stack.enter_context(open_output(command.output))
            output.writelines(map(printable_json, write(calls, shown)))
        else:
            console = stack.enter_context(open_console(command.output))
            show_calls(calls, session, console, show_all=command.show_all, shown=shown)
    say_what_is_unread(decoding)
    return _verdict(command, session, interrupt)


def _message(
    command: DecodeCommand, index: int, inputs: Inputs, chosen: Filter | None, stack: ExitStack
) -> int:
    """Shows one message: a first pass finds out which it is, a second decodes it again."""
    from rpcinspect.views.jsonl.lines import message_line
    from rpcinspect.views.text.detail import HEX_ROWS, detail

    session, shown = inputs.session(chosen)
    if index >= session.totals.messages:
        last = session.totals.messages - 1
        others = f"the last is {last}" if last >= 0 else "nor any other"
        say(f"there is no message {index}, {others}")
        return exit_codes.USAGE
    row = int(session.order[index])
    if shown is not None and not shown.rows[row]:
        say(f"message {index} does not match {shown.text}")
        if command.json:
            _write_messages((), command)
        return _verdict(command, session)
    with inputs.decoding() as decoding:
        record = decoding.record(row)
        if record is None:
            raise CaptureError(f"{command.files[0]}: it has become shorter while it was read")
        if command.json:
            line = message_line(record, session, decoding.bytes, hashes=not command.no_hash)
            _write_messages((line,), command)
        else:
            console = stack.enter_context(open_console(command.output))
            rows = None if command.show_all else HEX_ROWS
            for part in detail(record, session, decoding.bytes, rows=rows):
                console.print(part)
    return _verdict(command, session)


def _write_messages(messages: Iterable[bytes], command: DecodeCommand) -> None:
    """Writes lines of messages alone."""
    from rpcinspect.views.jsonl.document import message_pieces

    write_json(message_pieces(messages) if command.format == "json" else messages, command.output)


def _write(
    command: DecodeCommand, path: Path, inputs: Inputs, chosen: Filter | None, stack: ExitStack
) -> int:
    """Saves the messages that the filter picks: a first pass finds them and writes JSON where that is asked
    for, a second takes them.
    """
    from rpcinspect.cli.redacting import save
    from rpcinspect.export.save import key_of

    with (
        inputs.decoding() as decoding,
        _json_view(command, decoding) if command.json else nullcontext() as view,
    ):
        shown = take_chosen(decoding, None if view is None else view.feed, chosen)
        session = inputs.named(decoding.session)
        if view is not None:
            output = stack.enter_context(open_output(command.output))
            _write_session(view, session, shown, command, output)
    with inputs.decoding() as decoding:
        key = key_of(command.redact_seed) if command.redact else None
        told = save(path, session, shown, decoding, key)
    say_if_empty(session)
    if command.json:
        say(told)
    else:
        tell([told], command.output)
    return _verdict(command, session)
