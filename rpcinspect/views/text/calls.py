"""A table of calls that a person can read: one line per request with its answer, calls below the one that
they were sent for.

In: the calls of a session. Out: lines of printable text. A call is put below another where it is certain that
it was sent for it; where several are possible it stands where its time is and names them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct
from rich.cells import cell_len

from rpcinspect.fields.phrases import MAX_NAME, counted, duration, end_label, join_ends, shorten, some
from rpcinspect.filter.matches import Shown
from rpcinspect.run.causes import MAX_SHOWN, Causes
from rpcinspect.session.model import Session
from rpcinspect.views.jsonl.calls import BATCH, CallRow, OfSession
from rpcinspect.views.text.columns import Line
from rpcinspect.views.text.console import StyledText, TextConsole
from rpcinspect.views.text.summary import hidden_words
from rpcinspect.views.text.table import ONE_LINE_FROM, cut_line, line_width, pad, write_line

NO_ANSWER = "no answer"
TOOK_WIDTH = len(NO_ANSWER)
MAX_DEPTH = 8
"""Levels that are indented; what is deeper stands there, too, and says what it was sent for."""
MAX_TEXT = 2000


class CallLayout(Struct, frozen=True, kw_only=True):
    """Widths of the columns, and how cells become lines; `width` None does not cut lines."""

    width: int | None
    ends_width: int
    index_width: int
    time_width: int

    def lines(self, cells: Sequence[str]) -> str:
        """Returns one row; two lines on a terminal that is too narrow for one."""
        request, answer, time, ends, took, what = cells
        head = f"{request:>{self.index_width}}  {answer:>{self.index_width}}  {time:>{self.time_width}}"
        head = f"{head}  {pad(ends, self.ends_width)}  {took:>{TOOK_WIDTH}}"
        if self.width is None or self.width >= ONE_LINE_FROM:
            return cut_line(f"{head}  {what}", self.width)
        first = head if cell_len(head) <= self.width else f"{request} {answer} {ends} {took}"
        return f"{cut_line(first, self.width)}\n{cut_line(f'    {what}', self.width)}"


HEADER = ("#", "answer", "seconds", "caller → callee", "took", "call and result")


def show_calls(
    calls: OfSession, session: Session, console: TextConsole, *, show_all: bool, shown: Shown | None = None
) -> None:
    """Prints everything; with `show_all` housekeeping, too."""
    rows = calls.rows if show_all else calls.calls
    failed = open_ = 0
    if rows:
        layout = _layout(session, console)
        write_line(console, layout.lines(HEADER), "bold")
        start = session.messages.time_ns[int(session.order[0])]
        order = nested(rows, session, calls.causes)
        while some_rows := list(islice(order, BATCH)):
            for batch in calls.batches([row for row, _ in some_rows]):
                for call, (_, depth) in zip(batch, some_rows, strict=True):
                    failed += call.failed
                    open_ += call.answer is None
                    write_line(console, layout.lines(_cells(call, depth, start)), _style(call))
        write_line(console, "")
    for line, style in _below(calls, len(rows), failed, open_, show_all, shown):
        console.print(StyledText(line, style=style), soft_wrap=not console.is_terminal)


def nested(rows: Sequence[int], session: Session, causes: Causes) -> Iterator[tuple[int, int]]:
    """The rows with how deep they are nested, each below the one that it was certainly sent for."""
    there = bytearray(len(session.messages))
    for row in rows:
        there[row] = 1
    below: dict[int, list[int]] = defaultdict(list)
    """By the row of the parent."""
    for row in rows:
        parent = causes.parents.get(int(session.index[row]))
        if parent is not None and there[session.order[parent]]:
            below[int(session.order[parent])].append(row)
            there[row] = 2
    for first in rows:
        if there[first] != 1:
            continue
        waiting = [(first, 0)]
        while waiting:
            row, depth = waiting.pop()
            yield row, depth
            waiting += [(child, depth + 1) for child in reversed(below.get(row, ()))]


def _style(call: CallRow) -> str:
    if call.failed:
        return "red"
    return "yellow" if call.answer is None else "dim" if call.housekeeping else ""


def _layout(session: Session, console: TextConsole) -> CallLayout:
    ends = map(join_ends, map(end_label, session.clients), map(end_label, session.servers))
    last = max(session.messages.time_ns) - session.messages.time_ns[int(session.order[0])]
    return CallLayout(
        width=line_width(console),
        ends_width=min(max(cell_len("caller → callee"), *map(cell_len, ends)), 2 * MAX_NAME + 3),
        index_width=max(6, len(str(len(session.order)))),
        time_width=len(f"{last / 1e9:.6f}"),
    )


def _cells(call: CallRow, depth: int, start_ns: int) -> tuple[str, ...]:
    indent = f"{'  ' * (min(depth, MAX_DEPTH) - 1)}└ " if depth else ""
    words = [f"{indent}{call.text}", call.outcome, reason(call, placed=0 < depth <= MAX_DEPTH)]
    return (
        str(call.request),
        "" if call.answer is None else str(call.answer),
        f"{(call.time_ns - start_ns) / 1e9:.6f}",
        join_ends(end_label(call.caller), end_label(call.callee)),
        NO_ANSWER if call.latency_ns is None else duration(call.latency_ns),
        shorten("  ".join(word for word in words if word), MAX_TEXT),
    )


def reason(call: CallRow, *, placed: bool = False) -> str:
    """What the call was sent for, in words; nothing where it is `placed` below that."""
    doubt = call.doubt
    if doubt is None:
        return f"for #{call.parents[0]}" if call.parents and not placed else ""
    if not doubt.parents:
        return "maybe for a request that was not captured"
    numbers = [f"#{number}" for number in doubt.parents]
    told = some(numbers, MAX_SHOWN) if len(numbers) > MAX_SHOWN else " or ".join(numbers)
    others = ["one that was not captured"] if doubt.unseen else []
    others += ["none"] if doubt.own else []
    return f"for {told}{', or for ' if others else ''}{' or '.join(others)}"


def _below(
    calls: OfSession, count: int, failed: int, open_: int, show_all: bool, shown: Shown | None
) -> Iterator[Line]:
    """What stands below the table."""
    if shown is None:
        told = [f"{failed:,} failed"] if failed else []
        told += [f"{open_:,} without an answer"] if open_ else []
        yield (
            counted(count, "call" if not show_all else "request") + (f": {', '.join(told)}" if told else ""),
            "bold",
        )
    else:
        of = calls.all_rows if show_all else calls.all_calls
        yield shown.words(count, of, "request" if show_all else "call"), "bold"
        for hint in shown.hints:
            yield f"  {hint}", "yellow"
    if calls.hidden and not show_all:
        yield hidden_words(calls.hidden), ""
    if calls.orphans:
        yield f"{counted(calls.orphans, 'answer')} to requests that were not captured: not in the table", ""
