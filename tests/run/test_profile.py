"""Profiles of callees: what the callers print, and what torch's own parser makes of the same events."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.profiler_legacy import _parse_legacy_records
from torch.autograd.profiler_util import EventList

from rpcinspect.rpc.envelope import RpcWithProfilingResp
from rpcinspect.rpc.profiling import LegacyEvent
from rpcinspect.run.profile import MEMORY, CallProfile, operator_runs, rows_of
from tests.checks.runs import traced, workload_trace
from tests.places import recorded
from tests.truth import workload

KINDS = ("mark", "push", "pop", "memory_alloc")
PROFILED = [
    "torch/prof2_legacy.pcap",
    "torch/kitchen.pcap",
    "versions/torch-1.13.1.pcap",
    "versions/torch-2.14.1.pcap",
    "torch-suite/DistAutogradTest.test_dist_autograd_profiling.pcap.gz",
]


class Record:
    """A record as `_parse_legacy_records` asks for it."""

    def __init__(self, event: LegacyEvent) -> None:
        self._event = event

    def __getattr__(self, name: str) -> Any:
        event = self._event
        fixed = {"is_async": False, "flops": 0, "scope": 0, "sequence_nr": -1, "fwd_thread_id": 0}
        fixed |= {"stack": [], "is_remote": False, "has_cuda": False, "cuda_memory_usage": 0}
        known = {
            "kind": KINDS[event.kind],
            "name": event.name,
            "handle": event.handle,
            "node_id": event.node_id,
            "thread_id": event.thread_id,
            "cpu_memory_usage": event.cpu_memory,
            "shapes": [list(shape) for shape in event.shapes],
        }
        return lambda: (fixed | known)[name]

    def cpu_elapsed_us(self, other: Record) -> float:
        return (other._event.cpu_ns - self._event.cpu_ns) / 1000.0


def torch_rows(events: Sequence[LegacyEvent]) -> dict[tuple[str, int], tuple[float, ...]]:
    """What torch's table would say of the events: (name, node) → calls, self, total, memory, self memory."""
    listed = EventList(_parse_legacy_records([[Record(event) for event in events]]), profile_memory=True)
    listed._build_tree()
    return {
        (row.key, row.node_id): (
            row.count,
            row.self_cpu_time_total,
            row.cpu_time_total,
            row.cpu_memory_usage,
            row.self_cpu_memory_usage,
        )
        for row in listed.key_averages()
    }


def our_rows(events: Sequence[LegacyEvent]) -> dict[tuple[str, int], tuple[float, ...]]:
    runs, broken = operator_runs(events)
    assert not broken
    rows: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for run in runs:
        row = rows[run.name, run.node_id]
        its = (1, run.self_ns / 1000, run.total_ns / 1000, run.memory, run.self_memory)
        row[:] = [a + b for a, b in zip(row, its, strict=True)]
    return {key: tuple(row) for key, row in rows.items()}


def same(events: Sequence[LegacyEvent]) -> None:
    theirs, ours = torch_rows(events), our_rows(events)
    assert theirs.keys() == ours.keys()
    for key, row in theirs.items():
        assert ours[key] == pytest.approx(row, abs=0.01)


@cache
def event_lists() -> list[tuple[LegacyEvent, ...]]:
    """Of every profiled answer there is."""
    traces = [workload_trace("profiled_legacy"), *(traced(recorded(name)) for name in PROFILED)]
    return [
        envelope.profiled_events
        for trace in traces
        for record in trace.messages
        for envelope in record.rpc.envelopes
        if isinstance(envelope, RpcWithProfilingResp)
    ]


def test_torch_makes_the_same_rows_of_every_captured_answer() -> None:
    assert len(event_lists()) == 14
    for events in event_lists():
        same(events)


@given(st.data())
def test_torch_makes_the_same_rows_of_events_of_every_kind(data: st.DataObject) -> None:
    """Ranges nested at random, on two threads, with repeated names, allocations and equal times."""
    time, handle = 1000, 0
    opened: list[tuple[int, str, int]] = []
    events = [legacy(0, "__start_profile", time, 0)]
    for _ in range(data.draw(st.integers(0, 20))):
        time += data.draw(st.sampled_from([0, 1, 500, 12_345]))
        what = data.draw(st.sampled_from(["push", "pop", "alloc"]))
        if what == "push":
            handle += 1
            name, thread = data.draw(st.sampled_from("abc")), data.draw(st.sampled_from([1, 1, 2]))
            opened.append((handle, name, thread))
            events.append(legacy(1, name, time, handle, thread))
        elif what == "pop" and opened:
            closed, _, thread = opened.pop()
            events.append(legacy(2, "", time, closed, thread))
        elif what == "alloc":
            events.append(legacy(3, "", time, 0, memory=data.draw(st.integers(-100, 100))))
    events += [legacy(2, "", time + 7, closed, thread) for closed, _, thread in reversed(opened)]
    same(events)


def legacy(
    kind: int, name: str, cpu_ns: int, handle: int, thread: int = 1, *, memory: int = 0
) -> LegacyEvent:
    return LegacyEvent(
        kind=kind,
        name=name,
        thread_id=thread,
        handle=float(handle),
        node_id=1,
        cpu_memory=memory,
        cpu_ns=cpu_ns,
        cuda_recorded=False,
        cuda_memory=0,
        cuda_device=-1,
        cuda_us=0,
        shapes=(),
    )


def test_a_pop_without_its_push_is_told() -> None:
    runs, broken = operator_runs([legacy(2, "", 5, 9)])
    assert (runs, broken) == ((), True)


# --- names --------------------------------------------------------------------------------------------------


def shown(profiles: Sequence[CallProfile]) -> Counter[tuple[str, int]]:
    return Counter((profile.shown(run), run.node_id) for profile in profiles for run in profile.runs)


def test_names_and_nodes_are_those_that_the_worker_prints() -> None:
    printed = Counter[tuple[str, int]]()
    for event in workload("profiled_legacy").of("profile"):
        for row in event["events"]:
            if "#remote_op" in row["name"]:
                printed[row["name"], row["node_id"]] += row["count"]
    profiles = workload_trace("profiled_legacy").profiles
    assert len(profiles) == 6
    told = shown(profiles)
    # of remote() the job fetches the value before it lets the profiler see its events
    remote = {key: count for key, count in told.items() if key[0].startswith("rpc_remote")}
    assert {key for key in told if key not in remote} == set(printed)
    assert told - Counter(remote) == printed


def test_times_are_those_that_the_worker_prints() -> None:
    line = (recorded("torch/prof2_legacy.truth")).read_text().splitlines()[0]
    printed = [row for row in json.loads(line.removeprefix("TRUTH "))["evs"] if "#remote_op" in row[0]]
    told = [
        [profile.shown(run), run.node_id, round(run.total_ns / 1000, 1)]
        for profile in traced(recorded("torch/prof2_legacy.pcap")).profiles
        for run in profile.runs
    ]
    names = {name for name, _, _ in printed}
    # the mode of an outermost call does not travel: this job's one rpc_async is taken for rpc_sync
    ours = [
        [name.replace("rpc_sync#aten::add", "rpc_async#aten::add"), node, time] for name, node, time in told
    ]
    assert sorted(row for row in ours if row[0] in names) == sorted(printed)


def test_a_nested_call_tells_its_mode_and_others_do_not() -> None:
    profiles = traced(recorded("torch/prof2_legacy.pcap")).profiles
    modes = {(profile.key, profile.caller): profile.mode_known for profile in profiles}
    assert modes["rpc_sync#f(worker1 -> worker0)", "worker1"]
    assert modes["rpc_remote#f(worker0 -> worker1)", "worker0"]
    assert not modes["rpc_sync#f(worker0 -> worker1)", "worker0"]


def test_rows_sum_the_runs_of_one_name_and_node() -> None:
    profiles = workload_trace("profiled_legacy").profiles
    rows = rows_of(profiles)
    assert Counter({(row.name, row.node_id): row.calls for row in rows}) == shown(profiles)
    assert sum(row.self_ns for row in rows) == sum(run.self_ns for p in profiles for run in p.runs)


def test_runs_lie_within_their_call() -> None:
    trace = workload_trace("profiled_legacy")
    for profile in trace.profiles:
        request, answer = trace.messages[profile.request].tp, trace.messages[profile.answer].tp
        for run in profile.runs:
            if run.name != MEMORY:
                assert request.first_ns <= run.begin_ns <= run.begin_ns + run.total_ns <= answer.last_ns


def test_without_a_profiler_there_is_nothing() -> None:
    assert workload_trace("basic_chain").profiles == ()
