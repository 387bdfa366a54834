"""The profile against torch's own table of the same events."""

from __future__ import annotations

import re

from msgspec.structs import replace
from torch.autograd.profiler_legacy import _parse_legacy_records
from torch.autograd.profiler_util import EventList

from rpcinspect.rpc.envelope import RpcWithProfilingResp
from rpcinspect.run.profile import REMOTE_OP, CallProfile
from rpcinspect.views.questions.profile import QUESTION, torch_time
from tests.checks.runs import workload_trace
from tests.cli.runner import visible
from tests.run.test_profile import Record
from tests.views.graphs import HOSTILE
from tests.views.opened import altered, told


def shown(profiles: list[CallProfile], *, every_call: bool = False) -> list[str]:
    return told(QUESTION.show(altered(workload_trace("profiled_legacy"), profiles=profiles), every_call))


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def test_every_cell_is_torchs() -> None:
    trace = workload_trace("profiled_legacy")
    for profile in trace.profiles:
        (envelope, *_) = trace.messages[profile.answer].rpc.envelopes
        assert isinstance(envelope, RpcWithProfilingResp)
        events = [
            replace(event, name=f"{profile.key}{REMOTE_OP}{event.name}") if event.kind == 1 else event
            for event in envelope.profiled_events
        ]
        listed = EventList(
            _parse_legacy_records([[Record(event) for event in events]]), profile_memory=profile.with_memory
        )
        listed._build_tree()
        table = listed.key_averages().table(max_name_column_width=None, max_shapes_column_width=None)
        if not profile.runs:
            assert table == ""  # each of its pushes repeats the one before: torch drops both
            continue
        theirs = [cells(line) for line in table.splitlines() if line.strip("- ")]
        ours = [cells(line) for line in shown([profile]) if not line.startswith(("rpc_sync and", "1 run"))]
        count = len(theirs) - 1  # without the total
        assert [row[: len(ours[0])] for row in theirs[:count]] == ours[:count]
        assert theirs[count] == ours[count]


def test_each_call_has_its_table_where_all_is_wanted() -> None:
    profiles = list(workload_trace("profiled_legacy").profiles)
    lines = shown(profiles, every_call=True)
    assert sum(line.startswith("Name ") for line in lines) == len(profiles) + 1
    for profile in profiles:
        assert any(line.startswith(f"#{profile.request}, answered by #{profile.answer}") for line in lines)


def test_an_assumed_mode_is_told() -> None:
    profiles = list(workload_trace("profiled_legacy").profiles)
    assert any("rpc_sync and rpc_async look the same" in line for line in shown(profiles))
    remote = [profile for profile in profiles if profile.mode_known]
    assert not any("look the same" in line for line in shown(remote))


def test_captured_names_are_harmless() -> None:
    profile = workload_trace("profiled_legacy").profiles[0]
    hostile = replace(profile, key=HOSTILE, caller=HOSTILE, broken=True)
    lines = shown([hostile], every_call=True)
    assert visible("\n".join(lines))
    assert any("without their begins" in line for line in lines)


def test_times_are_written_as_torch_does() -> None:
    assert [torch_time(ns) for ns in (0, 1500, 2_345_678, 3_000_000_000)] == [
        "0.000us",
        "1.500us",
        "2.346ms",
        "3.000s",
    ]


def test_without_a_profiler_it_is_said_how_there_would_be_one() -> None:
    assert shown([]) == [line for line in shown([]) if "profiler_legacy.profile" in line]
