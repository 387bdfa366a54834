"""Latencies on a terminal."""

from __future__ import annotations

import re

from msgspec.structs import replace

from rpcinspect.views.text.latency import MAX_ROWS, show_latency
from tests.commands.runner import visible
from tests.trace.runs import workload_trace
from tests.views.graphs import HOSTILE
from tests.views.opened import file_console


def shown(name: str) -> list[str]:
    console, out = file_console()
    show_latency(workload_trace(name).latency, console)
    return out.getvalue().splitlines()


def test_functions_pairs_and_stragglers_have_their_rows() -> None:
    latency = workload_trace("ps_race").latency
    lines = shown("ps_race")
    heads = [lines.index(line) for line in lines if re.match(r"(function|from → to|straggler) ", line)]
    assert len(heads) == 3
    assert heads[1] - heads[0] == len(latency.functions) + 2
    assert heads[2] - heads[1] == len(latency.pairs) + 2
    assert [
        int(line.split()[0][1:]) for line in lines[heads[2] + 1 : heads[2] + 1 + len(latency.stragglers)]
    ] == [straggler.request for straggler in latency.stragglers]


def test_long_lists_are_cut_unless_all_is_wanted() -> None:
    latency = workload_trace("basic_chain").latency
    many = replace(latency, functions=latency.functions * 20)
    console, out = file_console()
    show_latency(many, console)
    hidden = len(many.functions) - MAX_ROWS
    assert f"… and {hidden} more (--all shows them)" in out.getvalue()
    console, everything = file_console()
    show_latency(many, console, show_all=True)
    assert len(everything.getvalue().splitlines()) == len(out.getvalue().splitlines()) - 1 + hidden


def test_captured_names_are_harmless() -> None:
    latency = workload_trace("basic_chain").latency
    group = replace(latency.functions[0], what=HOSTILE, total=None, own=None, answered=0)
    console, out = file_console()
    show_latency(replace(latency, functions=(group,)), console)
    assert visible(out.getvalue())
    assert "open)" in out.getvalue()


def test_no_request_is_an_answer() -> None:
    console, out = file_console()
    latency = workload_trace("basic_chain").latency
    show_latency(replace(latency, functions=(), pairs=(), timings=(), stragglers=()), console)
    assert out.getvalue() == "no request was seen\n"
