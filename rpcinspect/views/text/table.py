"""A table that a person can read: one line per message.

In: records as they become complete, then the session. Out: lines of printable text. Lines are laid out by
hand, since they must be able to appear one by one, and tens of thousands of them at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from rpcinspect.fields.phrases import Phrases, duration, end_label, join_ends
from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, Session
from rpcinspect.views.spool import Spool
from rpcinspect.views.text.console import StyledText, TextConsole

if TYPE_CHECKING:
    from rpcinspect.fields.session import Known
    from rpcinspect.filter.matches import Shown
    from rpcinspect.session.model import LogEvent

TYPE_WIDTH = 29
"""Of CLEANUP_AUTOGRAD_CONTEXT_RESP, the longest name."""
PADDED_FROM = 120
"""Terminals at least as wide get a column for the type, as files do."""
ONE_LINE_FROM = 100
"""Narrower ones get two lines per message."""
BATCH = 1000
"""Lines that are laid out at a time."""


class MessageRow(Struct, frozen=True):
    """The cells of one line."""

    index: int | None
    """None of what is no message."""
    time_s: float | None
    source: str
    destination: str
    type: str
    answers: int | None
    latency_ns: int | None
    text: str
    housekeeping: bool = False
    failed: bool = False

    @property
    def style(self) -> str:
        """Errors in red, housekeeping in the background."""
        return "red" if self.failed else "dim" if self.housekeeping else ""


class Layout(Struct, frozen=True, kw_only=True):
    """Widths of the columns, and how rows become lines; `width` None does not cut lines."""

    width: int | None
    ends_width: int
    index_width: int = 6
    time_width: int = 11

    def header(self) -> str:
        """The line or lines above the rows."""
        return self._lay_out("#", "seconds", "from → to", "message", "", "what happened")

    def line(self, row: MessageRow) -> str:
        """Returns one row; two lines on a terminal that is too narrow for one."""
        answers = ""
        if row.answers is not None:
            latency = "" if row.latency_ns is None else f" {duration(row.latency_ns)}"
            answers = f"#{row.answers}{latency}"
        ends = join_ends(row.source, row.destination) if row.destination else row.source
        index = "" if row.index is None else str(row.index)
        time = "" if row.time_s is None else f"{row.time_s:.6f}"
        return self._lay_out(index, time, ends, row.type, answers, row.text)

    def _lay_out(self, index: str, time: str, ends: str, kind: str, answers: str, text: str) -> str:
        head = f"{index:>{self.index_width}}  {time:>{self.time_width}}  {pad(ends, self.ends_width)}"
        what = f"{answers}  {text}" if answers else text
        if self.width is None or self.width >= PADDED_FROM:
            return self._cut(f"{head}  {kind.ljust(TYPE_WIDTH)}  {what}")
        if self.width >= ONE_LINE_FROM:
            return self._cut(f"{head}  {kind}  {what}")
        if self.width >= cell_len(head) + TYPE_WIDTH:
            first, second = f"{head}  {kind}  {answers}", text
        else:
            first, second = f"{index} {time} {ends}", f"{kind} {what}"
        indent = " " * min(self.index_width + 2, 4)
        return self._cut(first) + (f"\n{self._cut(indent + second)}" if second else "")

    def _cut(self, line: str) -> str:
        return cut_line(line, self.width)


class MessageTable:
    """The view for captures that are read to their end before the first line is shown."""

    def __init__(self, spool: BinaryIO, *, show_all: bool) -> None:
        """`show_all`: housekeeping too."""
        self._spool = Spool(spool)
        self._show_all = show_all
        self._phrases = Phrases()

    def feed(self, records: Sequence[RpcRecord | None]) -> None:
        """Renders some messages, in the order in which messages become complete; None stands for one that
        will not be shown.
        """
        rows = []
        for record in records:
            mark = "" if record is None else "!" if failed(record) else " "
            phrase = "" if record is None else self._phrases.phrase(record)
            rows.append((mark + phrase).encode("utf-8", "backslashreplace"))
        self._spool.extend(rows)

    def show(self, session: Session, console: TextConsole, shown: Shown | None = None) -> None:
        """Prints every line, or the lines of the messages in `shown`."""
        messages = session.messages
        if not messages:
            return
        logs = session.worker_logs.events if session.worker_logs is not None and shown is None else ()
        order = self._order(session, shown)
        if not order and not logs:
            return
        ends = map(join_ends, map(end_label, session.clients), map(end_label, session.servers))
        last = max(messages.time_ns) - messages.time_ns[int(session.order[0])]
        layout = Layout(
            width=line_width(console),
            ends_width=max(map(cell_len, ends)),
            index_width=max(4, len(str(len(session.order)))),
            time_width=len(f"{last / 1e9:.6f}"),
        )
        write_line(console, layout.header(), "bold")
        if layout.width is None and not logs:
            for lines in self._lines(session, order, layout):
                console.file.write(lines)
            return
        for row in _with_logs(self._rows(session, order), logs, min(messages.time_ns)):
            write_line(console, layout.line(row), row.style)

    def _order(self, session: Session, shown: Shown | None) -> list[int]:
        """The rows of the lines."""
        rows: list[int] = session.order.tolist()
        if not self._show_all:
            keeping = session.messages.housekeeping()
            rows = [row for row in rows if not keeping[row]]
        return rows if shown is None else shown.of(rows)

    def _lines(self, session: Session, order: list[int], layout: Layout) -> Iterator[str]:
        """The lines of `_rows` where nothing is cut, some at a time: 2 µs each, where a `MessageRow` and its
        layout take 6.
        """
        start = session.messages.time_ns[int(session.order[0])]
        time, end_ns = session.messages.time_ns, session.messages.end_time_ns
        partners = session.messages.partner
        clients, servers = list(map(end_label, session.clients)), list(map(end_label, session.servers))
        templates: dict[tuple[int, int, int], str] = {}

        def make(pipe: int, forth: int, kind: int) -> str:
            ends = (clients[pipe], servers[pipe]) if forth else (servers[pipe], clients[pipe])
            both = pad(join_ends(*ends), layout.ends_width).replace("%", "%%")
            numbers = f"%{layout.index_width}d  %{layout.time_width}.6f"
            line = f"{numbers}  {both}  {type_name(kind).ljust(TYPE_WIDTH)}  %s%s"
            templates[pipe, forth, kind] = line
            return line

        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            heads = session.heads(rows)
            lines = []
            for row, number, time_ns, pipe, forth, kind, answers, text in zip(
                rows,
                heads.number,
                heads.time_ns,
                heads.pipe,
                heads.from_client,
                heads.type,
                heads.answers,
                self._spool.read(rows),
                strict=True,
            ):
                told = ""
                if answers != NONE:
                    told = f"#{answers} {duration(max(0, end_ns[row] - time[partners[row]]))}  "
                line = templates.get((pipe, forth, kind)) or make(pipe, forth, kind)
                lines.append((line % (number, (time_ns - start) / 1e9, told, text[1:].decode())).rstrip())
            yield "\n".join([*lines, ""])

    def _rows(self, session: Session, order: list[int]) -> Iterator[MessageRow]:
        from rpcinspect.fields.session import AtTheEnd  # which files do without

        known = AtTheEnd(session)
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            told = ((text[:1] == b"!", text[1:].decode()) for text in self._spool.read(rows))
            yield from message_rows(known.at(rows), told)


def message_rows(known: Known, told: Iterable[tuple[bool, str]]) -> Iterator[MessageRow]:
    """The cells of the messages that were chosen; `told`: of each whether it failed, and its phrase."""
    ends = zip(map(end_label, known.src), map(end_label, known.dst), strict=True)
    kinds = zip(known.type, known.answers, known.latency, known.housekeeping, strict=True)
    columns = zip(known.index, known.time, ends, kinds, told, strict=True)
    for index, time_ns, (source, destination), (kind, answers, latency, keeping), (bad, text) in columns:
        took = None if answers is None else latency
        yield MessageRow(index, time_ns / 1e9, source, destination, kind, answers, took, text, keeping, bad)


def _with_logs(rows: Iterator[MessageRow], events: Sequence[LogEvent], start_ns: int) -> Iterator[MessageRow]:
    """The rows of messages with lines of workers' own logs between them; those without a time follow the line
    before them in the order of events."""
    waiting = deque(_log_row(event, start_ns) for event in events)
    now = float("-inf")
    for row in rows:
        assert row.time_s is not None
        while waiting and (now if waiting[0].time_s is None else waiting[0].time_s) <= row.time_s:
            now = now if waiting[0].time_s is None else waiting[0].time_s
            yield waiting.popleft()
        yield row
    yield from waiting


def _log_row(event: LogEvent, start_ns: int) -> MessageRow:
    from rpcinspect.views.worker_logs import is_bad, said

    return MessageRow(
        index=None,
        time_s=None if event.time_ns is None else (event.time_ns - start_ns) / 1e9,
        source=end_label(event.worker or "?"),
        destination="",
        type="log",
        answers=None,
        latency_ns=None,
        text=said(event) if event.message is None else f"#{event.message}  {said(event)}",
        failed=is_bad(event),
    )


def failed(record: RpcRecord) -> bool:
    """Whether the message is an answer that reports an error, or could not be read whole."""
    return record.facts.failed or record.like.message.type == MessageType.EXCEPTION or bool(record.problems)


def pad(text: str, width: int) -> str:
    """Padded on the right to a width in cells of the terminal: some characters take two, some none."""
    return text + " " * (width - cell_len(text))


def line_width(console: TextConsole) -> int | None:
    """Where to cut lines: at the terminal's edge, nowhere in a file."""
    return console.width if console.is_terminal else None


def cut_line(line: str, width: int | None) -> str:
    """The line, cut with a sign of it at a terminal's edge."""
    line = line.rstrip()
    if width is None or cell_len(line) <= width:
        return line
    return set_cell_size(line, max(0, width - 1)).rstrip() + "…"


def write_line(console: TextConsole, line: str, style: str = "") -> None:
    """Prints one laid out line. rich takes a tenth of a millisecond for it, so plain lines go past it."""
    if style and console.is_terminal:
        console.print(StyledText(line, style))
    else:
        console.file.write(f"{line}\n")
