"""A table that a person can read: one line per message, then a summary.

In: records as they become complete, then the session. Out: lines of text. Lines are laid out by hand, since
they must be able to appear one by one; the summary's tables are rich's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, Finding, Session
from rpcinspect.views.phrases import phrase, printable
from rpcinspect.views.spool import Spool

TYPE_WIDTH = 29
"""Of CLEANUP_AUTOGRAD_CONTEXT_RESP, the longest name."""

SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}


@dataclass(frozen=True, slots=True)
class Row:
    """What one line shows."""

    index: int
    time_s: float
    source: str
    destination: str
    type: str
    answers: int | None
    latency_ns: int | None
    text: str
    control: bool = False
    failed: bool = False


class Layout:
    """Widths of the columns, and how rows become lines; `width` None does not cut lines."""

    def __init__(self, ends_width: int, width: int | None) -> None:
        self._ends_width = ends_width
        self._width = width

    def header(self) -> str:
        """The line above the rows."""
        ends = "from → to".ljust(self._ends_width)
        return self._cut(f"{'#':>6}  {'seconds':>11}  {ends}  {'message'.ljust(TYPE_WIDTH)}  what")

    def line(self, row: Row) -> str:
        """One row."""
        ends = f"{row.source} → {row.destination}".ljust(self._ends_width)
        answers = ""
        if row.answers is not None:
            latency = "" if row.latency_ns is None else f" {duration(row.latency_ns)}"
            answers = f"#{row.answers}{latency}  "
        text = (
            f"{row.index:>6}  {row.time_s:>11.6f}  {ends}  {row.type.ljust(TYPE_WIDTH)}  {answers}{row.text}"
        )
        return self._cut(text.rstrip())

    def _cut(self, line: str) -> str:
        if self._width is None or len(line) <= self._width:
            return line
        return line[: max(1, self._width - 1)] + "…"


class MessageTable:
    """The view for captures that are read to their end before the first line is shown."""

    def __init__(self, spool: BinaryIO, *, control: bool) -> None:
        """`control`: show the agent's own calls too."""
        self._spool = Spool(spool)
        self._control = control

    def feed(self, record: RpcRecord) -> None:
        """Renders one message, in the order in which messages become complete."""
        mark = "!" if failed(record) else " "
        self._spool.append((mark + phrase(record)).encode("utf-8", "backslashreplace"))

    def finish(self, session: Session, console: Console) -> Iterator[Text]:
        """Every line of the table."""
        order = session.order.tolist()
        messages = session.messages
        start = messages.time_ns[order[0]] if order else 0
        labels = {printable(label) for label in (*session.clients, *session.servers)}
        longest = max((len(label) for label in labels), default=6)
        layout = Layout(min(2 * longest + 3, 60), line_width(console))
        if order:
            yield Text(layout.header(), style="bold", end="")
        for index, (row, text) in enumerate(zip(order, self._spool.read(order), strict=True)):
            if messages.control[row] and not self._control:
                continue
            partner = messages.partner[row]
            answers = session.answers(row)
            latency = None
            if answers is not None and partner != NONE:
                latency = messages.time_ns[row] - messages.end_time_ns[partner]
            shown = Row(
                index,
                (messages.time_ns[row] - start) / 1e9,
                printable(session.source(row)),
                printable(session.destination(row)),
                type_name(messages.type[row]),
                answers,
                latency,
                text[1:].decode(),
                bool(messages.control[row]),
                text[:1] == b"!",
            )
            yield Text(layout.line(shown), style=style_of(shown), end="")


def failed(record: RpcRecord) -> bool:
    """Whether the message is an answer that reports an error, or could not be read whole."""
    return record.facts.failed or type_name(record.rpc.message.type) == "EXCEPTION" or bool(record.problems)


def style_of(row: Row) -> str:
    """The style of a line."""
    return "red" if row.failed else "dim" if row.control else ""


def line_width(console: Console) -> int | None:
    """Where to cut lines: at the terminal's edge, nowhere in a file."""
    return console.width if console.is_terminal else None


def duration(nanoseconds: int) -> str:
    """A time span in the unit that suits it."""
    size = abs(nanoseconds)
    for unit, name in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")):
        if size >= unit:
            return f"{nanoseconds / unit:.3g} {name}"
    return f"{nanoseconds} ns"


def amount(count: int) -> str:
    """Bytes in the unit that suits them."""
    size = float(count)
    for name in ("bytes", "KB", "MB", "GB"):
        if size < 1000 or name == "GB":
            return f"{count:,} {name}" if name == "bytes" else f"{size:.3g} {name}"
        size /= 1000
    return f"{count:,} bytes"


def summary(session: Session, hidden_control: int) -> RenderableType:
    """What stands below the table."""
    totals = session.totals
    parts: list[RenderableType] = [""]
    captured = ", ".join(f"{printable(c.path)} ({c.format}, {c.packets:,} packets)" for c in session.captures)
    parts.append(Text(f"{totals.messages:,} messages in {captured}", style="bold"))
    if hidden_control:
        parts.append(
            Text(f"{hidden_control:,} calls of the agents themselves are not shown (--all shows them)")
        )
    parts.append(
        Text(
            f"{amount(totals.rpc_bytes)} of RPC, {amount(totals.tensor_bytes)} of tensors, "
            f"{amount(totals.missing_bytes)} missing, {amount(totals.skipped_bytes)} of other traffic; "
            f"{len(session.contexts):,} autograd contexts, {len(session.rrefs):,} RRefs, "
            f"{totals.problems:,} problems"
        )
    )
    if session.workers:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("worker", "id", "listens at"):
            table.add_column(column, overflow="fold")
        for worker in session.workers:
            table.add_row(
                printable(worker.name or "?"),
                "?" if worker.id is None else str(worker.id),
                printable(", ".join(worker.addresses)) or "?",
            )
        parts += ["", table]
    if totals.by_type:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("message")
        table.add_column("count", justify="right")
        for name, count in totals.by_type.items():
            table.add_row(name, f"{count:,}")
        parts += ["", table]
    for finding in session.findings:
        parts += ["", finding_text(finding)]
    parts += problem_lines(session)
    return Group(*parts)


def finding_text(finding: Finding) -> Text:
    """A finding: severity and code, what it is, what helps."""
    text = Text()
    text.append(f"{finding.severity}: {finding.code}", style=SEVERITY_STYLES[finding.severity])
    text.append(f"  {printable(finding.text)}")
    if finding.remedy:
        text.append(f"\n  {printable(finding.remedy)}")
    return text


def problem_lines(session: Session) -> list[RenderableType]:
    """Problems that belong to no message; those of messages are at their lines."""
    shown: list[RenderableType] = []
    for problem in session.problems[:20]:
        where = problem.location
        place = [f"packet {where.packet}" if where.packet is not None else "", where.flow or ""]
        place.append(f"offset {where.offset}" if where.offset is not None else "")
        at = ", ".join(part for part in place if part)
        shown.append(Text(f"problem: {problem.layer}: {printable(problem.reason)} ({at})", style="yellow"))
    if len(session.problems) > len(shown):
        shown.append(Text(f"… and {len(session.problems) - len(shown):,} more problems", style="yellow"))
    return shown
