"""Profiles of callees as torch's own table shows them: its columns, its names, its way to write times.

In: `CallProfile`s. Out: lines of printable text on a console. Names are not cut as torch cuts them, but in
the middle, where a terminal is too narrow: what comes last in them is the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from rpcinspect.fields.phrases import counted, printable
from rpcinspect.run.profile import CallProfile, ProfileRow, rows_of
from rpcinspect.views.text.columns import Columns, Line, show_lines
from rpcinspect.views.text.table import end_label, join_ends

HEADER = ("Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg")
MEMORY = ("CPU Mem", "Self CPU Mem")
LAST = ("# of Calls", "Node ID")

NOTHING = (
    "no call was profiled: only torch.autograd.profiler_legacy.profile at the caller makes callees send "
    "the events of their operators"
)
ASSUMED = "rpc_sync and rpc_async look the same on the wire; where unsure, this says rpc_sync"
SHARES = "shares are of what ran at callees; the callers' own operators are not sent"


def show_profile(profiles: Sequence[CallProfile], console: Console, *, every_call: bool = False) -> None:
    """Prints one table; with `every_call` one for each profiled call before it."""
    show_lines(_lines(profiles, every_call), console)


def _lines(profiles: Sequence[CallProfile], every_call: bool) -> Iterator[Line | Columns]:
    if not profiles:
        yield NOTHING, ""
        return
    for profile in profiles if every_call else ():
        ends = join_ends(end_label(profile.caller), end_label(profile.callee))
        yield f"#{profile.request}, answered by #{profile.answer}, {ends}: {printable(profile.key)}", "bold"
        yield from _table([profile])
        yield "", ""
    yield from _table(profiles)
    rows = sum(len(profile.runs) for profile in profiles)
    yield f"{counted(rows, 'run')} in {counted(len(profiles), 'profiled call')}; {SHARES}", "dim"
    if not all(profile.mode_known for profile in profiles):
        yield ASSUMED, "dim"
    for profile in profiles:
        if profile.broken:
            yield f"#{profile.answer}: ends of operators without their begins were left out", "yellow"


def _table(profiles: Sequence[CallProfile]) -> Iterator[Line | Columns]:
    rows = rows_of(profiles)
    memory = any(profile.with_memory for profile in profiles)
    total = sum(row.self_ns for row in rows)
    header = (*HEADER, *(MEMORY if memory else ()), *LAST)
    cells = [_cells(row, total, memory) for row in rows]
    yield Columns(header, cells, right=range(1, len(header)))
    yield f"Self CPU time total: {torch_time(total)}", ""


def _cells(row: ProfileRow, total: int, memory: bool) -> tuple[str, ...]:
    return (
        printable(row.name),
        _share(row.self_ns, total),
        torch_time(row.self_ns),
        "0" if row.is_async else _share(row.total_ns, total),
        torch_time(row.total_ns),
        torch_time(row.total_ns / row.calls),
        *((_memory(row.memory), _memory(row.self_memory)) if memory else ()),
        str(row.calls),
        str(row.node_id),
    )


def torch_time(nanoseconds: float) -> str:
    """As `_format_time` of torch/autograd/profiler_util.py."""
    if nanoseconds >= 1e9:
        return f"{nanoseconds / 1e9:.3f}s"
    if nanoseconds >= 1e6:
        return f"{nanoseconds / 1e6:.3f}ms"
    return f"{nanoseconds / 1e3:.3f}us"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "NaN"


def _memory(count: int) -> str:
    """As torch's `_format_memory`."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(count) >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} B"
