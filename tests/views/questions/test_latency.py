"""Latencies on a terminal."""

from __future__ import annotations

import re

from msgspec.structs import replace

from rpcinspect.rpc.callee import Name
from rpcinspect.rpc.message import type_name
from rpcinspect.run.latency import Timing, for_people
from rpcinspect.views.questions.latency import MAX_ROWS, QUESTION
from tests.checks.runs import workload_trace
from tests.cli.runner import visible
from tests.views.graphs import HOSTILE
from tests.views.opened import altered, told


def shown(name: str, *, every: bool = False, **answers: object) -> list[str]:
    return told(QUESTION.show(altered(workload_trace(name), **answers), every))


def test_functions_pairs_and_stragglers_have_their_rows() -> None:
    latency = for_people(workload_trace("ps_race").latency)
    lines = shown("ps_race")
    heads = [lines.index(line) for line in lines if re.match(r"(function|from → to|straggler) ", line)]
    assert len(heads) == 3
    assert heads[1] - heads[0] == len(latency.functions) + 2
    assert heads[2] - heads[1] == len(latency.pairs) + 2
    assert [
        int(line.split()[0][1:]) for line in lines[heads[2] + 1 : heads[2] + 1 + len(latency.stragglers)]
    ] == [straggler.timing.call.index for straggler in latency.stragglers]


def named(timing: Timing, name: str) -> Timing:
    """The same of a call without an answer to somebody else."""
    call = replace(timing.call, name=Name(name, name), answer=None)
    return replace(timing, call=call, row=name)


def test_long_lists_are_cut_unless_all_is_wanted() -> None:
    latency = workload_trace("basic_chain").latency
    one = next(timing for timing in latency.timings if not timing.call.housekeeping)
    timings = tuple(named(one, f"app.f{n}") for n in range(MAX_ROWS + 9))
    many = replace(latency, timings=timings)
    lines, hidden = shown("basic_chain", latency=many), 9
    assert f"… and {hidden} more (--all shows them)" in lines
    assert len(shown("basic_chain", latency=many, every=True)) == len(lines) - 1 + hidden


def test_captured_names_are_harmless() -> None:
    latency = workload_trace("basic_chain").latency
    one = next(timing for timing in latency.timings if not timing.call.housekeeping)
    open_ = replace(named(one, HOSTILE), busy_ns=None, answer_ns=None, nested_ns=None)
    lines = shown("basic_chain", latency=replace(latency, timings=(open_,)))
    assert visible("\n".join(lines))
    assert lines[0].split()[:3] == ["function", "count", "open"]
    assert "failed" not in lines[0]


def test_no_request_is_an_answer() -> None:
    latency = workload_trace("basic_chain").latency
    nothing = replace(latency, functions=(), pairs=(), timings=(), stragglers=())
    assert shown("basic_chain", latency=nothing) == ["no request was seen"]


def test_calls_that_may_be_nested_are_counted() -> None:
    """In the first job nothing that a program could have sent by itself is nested."""
    assert not any("may be nested" in line for line in shown("basic_chain"))
    lines = told(QUESTION.show(workload_trace("pairs/order_async"), False))
    assert "3 calls may be nested, but not for certain: own has their time, too" in lines


def test_housekeeping_is_counted_and_shown_on_demand() -> None:
    latency = workload_trace("rref_relay").latency
    lines = shown("rref_relay")
    hidden = sum(timing.call.housekeeping for timing in latency.timings)
    assert f"{hidden} housekeeping exchanges hidden; --all shows them" in lines
    assert not any(line.startswith(("RREF_USER", "RREF_CHILD", "RREF_FORK", "CLEANUP_")) for line in lines)
    lines = shown("rref_relay", every=True)
    assert not any("hidden" in line for line in lines)
    rows = [line.split()[:2] for line in lines]
    for kind in ("RREF_USER_DELETE", "RREF_CHILD_ACCEPT"):
        assert [kind, str(sum(type_name(timing.call.kind) == kind for timing in latency.timings))] in rows
    assert any(row and row[0].endswith("_gather_to_leader") for row in rows)
