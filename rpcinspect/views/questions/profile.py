"""Profiles of callees as torch's own table shows them: its columns, its names, its way to write times.

In: a run. Out: a table of operators, and `profile` and `profile_row` lines of JSON. Names are not cut as
torch cuts them, but in the middle, where a terminal is too narrow: what comes last in them is the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.fields.phrases import counted, end_label, join_ends, printable
from rpcinspect.fields.plain import Json, Picked, text
from rpcinspect.run.profile import CallProfile, ProfileRow, rows_of
from rpcinspect.run.run import RunModel
from rpcinspect.views.columns import Column, json_of, table
from rpcinspect.views.questions.question import Question
from rpcinspect.views.text.columns import Part

NOTHING = (
    "no call was profiled: only torch.autograd.profiler_legacy.profile at the caller makes callees send "
    "the events of their operators"
)
ASSUMED = "rpc_sync and rpc_async look the same on the wire; where unsure, this says rpc_sync"
SHARES = "percentages cover callees only; the callers' own operators are not sent"


def torch_time(nanoseconds: float) -> str:
    """Returns a time as `_format_time` of torch/autograd/profiler_util.py writes it."""
    if nanoseconds >= 1e9:
        return f"{nanoseconds / 1e9:.3f}s"
    if nanoseconds >= 1e6:
        return f"{nanoseconds / 1e6:.3f}ms"
    return f"{nanoseconds / 1e3:.3f}us"


def _memory(count: int) -> str:
    """As torch's `_format_memory`."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(count) >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} B"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "NaN"


def _total_share(row: ProfileRow, all_ns: int) -> str:
    return "0" if row.is_async else _share(row.total_ns, all_ns)


MEMORY = (
    Column(title="CPU Mem", of="memory", words=_memory, right=True),
    Column(title="Self CPU Mem", of="self_memory", words=_memory, right=True),
)
"""Where the profiler was asked for it."""
ROW = (
    *(Column(key) for key in ("job", "name", "node_id", "calls")),
    Column(title="Name", of="name", words=printable, gives_way=True),
    Column(title="Self CPU %", cell=lambda row, all_ns: _share(row.self_ns, all_ns), right=True),
    Column("self_ns", title="Self CPU", words=torch_time, right=True),
    Column(title="CPU total %", cell=_total_share, right=True),
    Column("total_ns", title="CPU total", words=torch_time, right=True),
    Column(title="CPU time avg", of=lambda row: row.total_ns / row.calls, words=torch_time, right=True),
    *(Column(key) for key in ("memory", "self_memory")),
    Column("async", of="is_async"),
    *MEMORY,
    Column(title="# of Calls", of="calls", words=str, right=True),
    Column(title="Node ID", of="node_id", words=str, right=True),
)

_profile = Picked("request answer job caller callee profiling_id key mode_known broken", "profile")
_run = Picked(
    "operator=name node_id thread_id=thread begin_ns total_ns self_ns async=is_async "
    "memory self_memory shapes"
)
_row = json_of(ROW, "profile_row")


def profile_json(profiles: Sequence[CallProfile]) -> Iterator[Json]:
    """A `profile` line for each profiled call, then the `profile_row` lines of torch's table."""
    for profile in profiles:
        runs = [{"name": text(profile.shown(run)), **_run(run)} for run in profile.runs]
        yield {**_profile(profile), "runs": runs}
    yield from map(_row, rows_of(profiles))


def _show(run: RunModel, every: bool) -> Iterator[Part]:
    profiles = run.profiles
    if not profiles:
        yield NOTHING, ""
        return
    for profile in profiles if every else ():
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


def _table(profiles: Sequence[CallProfile]) -> Iterator[Part]:
    rows = rows_of(profiles)
    all_ns = sum(row.self_ns for row in rows)
    memory = any(profile.with_memory for profile in profiles)
    yield table(ROW if memory else [one for one in ROW if one not in MEMORY], rows, all_ns)
    yield f"Self CPU time total: {torch_time(all_ns)}", ""


QUESTION = Question(
    noun="profiled call",
    kinds=("profile", "profile_row"),
    count=lambda run, _: len(run.profiles),
    show=_show,
    json=lambda run: profile_json(run.profiles),
)
