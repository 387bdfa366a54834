"""What the legacy profiler of the callers shows of their callees: the operators that ran there, call by call.

In: exchanges, and the profiler's events in their answers. Out: a `CallProfile` per profiled call, and rows as
`key_averages` of torch.autograd.profiler_legacy makes them: a push and its pop are one run of an operator; a
run within another one of the same thread is its child; *self* is without children.

A caller puts a key before each name that it prints: `rpc_sync#f(worker0 -> worker1)#remote_op: aten::mul`.
Whether it called by rpc_sync or rpc_async does not travel. A call within a profiled call tells it, since its
events come back under its key; of others rpc_sync is assumed, and `mode_known` is False.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from rpcinspect.pickles.semantic import python_udf
from rpcinspect.pickles.tree import Global
from rpcinspect.rpc.command import ScriptCall, ScriptRemoteCall
from rpcinspect.rpc.envelope import RpcWithProfilingReq, RpcWithProfilingResp
from rpcinspect.rpc.profiling import LegacyEvent
from rpcinspect.rpc.questions import REMOTE
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange

PUSH, POP, ALLOC = 1, 2, 3
"""Kinds of events."""
REMOTE_OP = "#remote_op: "
"""REMOTE_PROFILING_KEY_PREFIX of torch/csrc/distributed/rpc/profiler/remote_profiler_manager.cpp."""
MEMORY = "[memory]"
"""What torch calls an allocation outside of every operator."""
MODES = ("rpc_sync", "rpc_async", "rpc_async_jit")


class OperatorRun(Struct, eq=False):
    """A run of an operator at the callee."""

    name: str
    """As the callee recorded it, without the caller's key."""
    node_id: int
    """The worker on which it ran; -1 where the profiler knew none."""
    thread: int
    begin_ns: int
    """By the callee's clock: since the epoch; in 1.8 of its monotonic clock."""
    end_ns: int
    is_async: bool
    """Whether the operator ended in another thread: then the time counts in the total only."""
    memory: int
    """Bytes of the CPU that were allocated less those that were freed, children's included."""
    shapes: tuple[tuple[int, ...], ...]
    parent: OperatorRun | None = None
    children: list[OperatorRun] = field(default_factory=list)

    @property
    def total_ns(self) -> int:
        """Returns the duration, children included."""
        return self.end_ns - self.begin_ns

    @property
    def self_ns(self) -> int:
        """Returns the duration without children."""
        return 0 if self.is_async else self.total_ns - sum(child.total_ns for child in self.children)

    @property
    def self_memory(self) -> int:
        """Returns the allocated memory without that of children, in bytes."""
        return 0 if self.is_async else self.memory - sum(child.memory for child in self.children)


class CallProfile(Struct, frozen=True, kw_only=True):
    """A profiled call."""

    request: int
    answer: int
    job: int
    caller: str
    callee: str
    profiling_id: tuple[int, int]
    key: str
    """`rpc_sync#f(worker0 -> worker1)`."""
    mode_known: bool
    """What stands before the `#` was seen, not assumed."""
    with_memory: bool
    runs: tuple[OperatorRun, ...]
    """In the order of their begins, the outer one of two first."""
    broken: bool
    """A pop came without its push: some runs are missing."""

    def shown(self, run: OperatorRun) -> str:
        """A run's name as the caller prints it."""
        return MEMORY if run.name == MEMORY else f"{self.key}{REMOTE_OP}{run.name}"


class ProfileRow(Struct, frozen=True, kw_only=True):
    """All runs that torch's table joins in one row."""

    job: int
    name: str
    node_id: int
    calls: int
    self_ns: int
    total_ns: int
    memory: int
    self_memory: int
    is_async: bool


def read_profiles(calls: Sequence[Exchange], causes: Causes) -> tuple[CallProfile, ...]:
    """The profiled calls that were answered, in their order."""
    seen: dict[int, frozenset[str]] = {}
    """Request → names that begin as keys do among its events."""
    found = []
    for call in calls:
        asked, told = _envelopes(call)
        if asked is None or told is None or call.answer is None:
            continue
        seen[call.index] = frozenset(_keys(told.profiled_events))
        parents, _ = causes.of(call.index)
        parent = frozenset().union(*(seen.get(one, frozenset()) for one in parents))
        key, known = _key(call, parent)
        runs, broken = operator_runs(told.profiled_events)
        found.append(
            CallProfile(
                request=call.index,
                answer=call.answer,
                job=call.job,
                caller=call.caller,
                callee=call.callee,
                profiling_id=told.profiling_id.to_value(),
                key=key,
                mode_known=known,
                with_memory=asked.profiler_config.profile_memory,
                runs=runs,
                broken=broken,
            )
        )
    return tuple(found)


def rows_of(profiles: Iterable[CallProfile]) -> tuple[ProfileRow, ...]:
    """Runs of equal name and node, in the order in which they first come."""
    groups: dict[tuple[int, str, int], list[OperatorRun]] = defaultdict(list)
    for profile in profiles:
        for run in profile.runs:
            groups[profile.job, profile.shown(run), run.node_id].append(run)
    return tuple(
        ProfileRow(
            job=job,
            name=name,
            node_id=node_id,
            calls=len(runs),
            self_ns=sum(run.self_ns for run in runs),
            total_ns=sum(run.total_ns for run in runs),
            memory=sum(run.memory for run in runs),
            self_memory=sum(run.self_memory for run in runs),
            is_async=runs[0].is_async,
        )
        for (job, name, node_id), runs in groups.items()
    )


def _envelopes(call: Exchange) -> tuple[RpcWithProfilingReq | None, RpcWithProfilingResp | None]:
    asked = told = None
    for envelope in call.request.rpc.envelopes:
        asked = envelope if isinstance(envelope, RpcWithProfilingReq) else asked
    for envelope in call.response.rpc.envelopes if call.response is not None else ():
        told = envelope if isinstance(envelope, RpcWithProfilingResp) else told
    return asked, told


# --- keys ---------------------------------------------------------------------------------------------------


def _keys(events: Iterable[LegacyEvent]) -> Iterator[str]:
    """The keys under which events of calls within a call came back."""
    for event in events:
        key, mark, _ = _text(event.name).partition(REMOTE_OP)
        if mark:
            yield key


def _key(call: Exchange, seen: frozenset[str]) -> tuple[str, bool]:
    """Returns (key, whether its mode was seen), as torch/distributed/rpc/rpc_utils.py builds it."""
    rest = f"#{_function(call.request)}({call.caller} -> {call.callee})"
    if call.kind in REMOTE:
        return f"rpc_remote{rest}", True
    modes = [mode for mode in MODES if f"{mode}{rest}" in seen]
    return f"{modes[0] if modes else MODES[0]}{rest}", len(modes) == 1


def _function(record: RpcRecord) -> str:
    """Returns the operator without overload, TorchScript's name, or a Python function's `__qualname__`."""
    command = record.rpc.command
    if isinstance(command, (ScriptCall, ScriptRemoteCall)):
        return command.function.partition(".")[0] if command.schema is not None else command.function
    pickle = record.facts.pickle
    udf = python_udf(pickle.root) if pickle is not None else None
    if udf is not None and isinstance(udf.func, Global):
        return udf.func.name
    return record.facts.function or "?"


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")


# --- events → runs ------------------------------------------------------------------------------------------


def operator_runs(events: Sequence[LegacyEvent]) -> tuple[tuple[OperatorRun, ...], bool]:
    """(runs, whether a pop lacked its push) of one answer."""
    ranges, broken = _ranges(events)
    ranges.sort(key=lambda r: (r.begin_ns, -r.end_ns))
    _nest(ranges)
    return tuple(_without_doubles(ranges)), broken


def _ranges(events: Sequence[LegacyEvent]) -> tuple[list[OperatorRun], bool]:
    """Pairs of push and pop, as `_parse_legacy_records` makes them: a push that repeats the one before it is
    left out, with everything under its handle; an allocation counts for every range that is open.
    """
    done: list[OperatorRun] = []
    opened: dict[tuple[float, int], tuple[LegacyEvent, int]] = {}
    """With all that had been allocated before each."""
    allocated = 0
    dropped: set[tuple[float, int]] = set()
    before: LegacyEvent | None = None
    broken = False
    for event in events:
        key = (event.handle, event.node_id)
        if key in dropped:
            continue
        if event.kind == PUSH:
            if before is not None and _alike(before, event):
                dropped.add(key)
                continue
            opened[key] = (event, allocated)
        elif event.kind == POP:
            start, before_it = opened.pop(key, (None, 0))
            if start is None:
                broken = True
            else:
                done.append(_range(start, event, allocated - before_it))
        elif event.kind == ALLOC:
            allocated += event.cpu_memory
            if not opened:
                done.append(OperatorRun(MEMORY, -1, 0, 0, 0, False, event.cpu_memory, ()))
        before = event
    return done, broken


def _alike(before: LegacyEvent, event: LegacyEvent) -> bool:
    return (before.name, before.kind, before.node_id) == (event.name, event.kind, event.node_id)


def _range(start: LegacyEvent, end: LegacyEvent, memory: int) -> OperatorRun:
    return OperatorRun(
        _text(start.name),
        end.node_id,
        start.thread_id,
        start.cpu_ns,
        end.cpu_ns,
        start.thread_id != end.thread_id,
        memory,
        start.shapes,
    )


def _nest(ranges: Sequence[OperatorRun]) -> None:
    """Gives each range its parent: the innermost of its thread that holds it whole."""
    stacks: dict[tuple[int, int], list[OperatorRun]] = defaultdict(list)
    for one in ranges:
        if one.is_async:
            continue
        stack = stacks[one.thread, one.node_id]
        while stack and (one.begin_ns >= stack[-1].end_ns or one.end_ns > stack[-1].end_ns):
            stack.pop()
        if stack:
            one.parent = stack[-1]
            stack[-1].children.append(one)
        stack.append(one)


def _without_doubles(ranges: Sequence[OperatorRun]) -> list[OperatorRun]:
    """Leaves out ranges that are the only child of a range of the same name."""
    kept = []
    for one in ranges:  # parents come before their children
        parent = one.parent
        if parent is not None and parent.name == one.name and len(parent.children) == 1:
            parent.children = one.children
            for child in one.children:
                child.parent = parent
        else:
            kept.append(one)
    return kept
