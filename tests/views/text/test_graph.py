"""The graph on a terminal."""

from __future__ import annotations

import re

from msgspec.structs import replace
from rich.cells import cell_len

from rpcinspect.views.graph_words import graph_title
from rpcinspect.views.text.columns import show_lines
from rpcinspect.views.text.graph import Lanes, graph_parts
from tests.checks.runs import traced, workload_trace
from tests.cli.runner import visible
from tests.places import recorded
from tests.views.graphs import every_kind, graph
from tests.views.opened import file_console, terminal_console, told


def shown(name: str) -> list[str]:
    trace = workload_trace(name)
    return told(graph_parts(trace.graphs[0], trace.critical_path(trace.graphs[0])))


def test_every_edge_and_gradient_has_an_arrow_in_the_order_of_time() -> None:
    lines = shown("basic_chain")
    assert lines[0].startswith("context 0:0, made by worker0: 2 workers, 4 edges, gradients for 4 of 4")
    arrows = [line for line in lines if "▶" in line or "◀" in line]
    numbers = [int(re.findall(r"#(\d+) ", line)[0]) for line in arrows]
    assert numbers == sorted(numbers) == [6, 7, 8, 9, 10, 11, 13, 15, 18, 19]
    assert [line.split()[1][0] for line in arrows[:4]] == ["├", "◀", "├", "◀"]
    assert sum("gradient of" in line for line in arrows) == 4
    assert not any("no gradient" in line for line in lines)


def test_edges_without_a_gradient_are_listed() -> None:
    lines = shown("bwd_boom")
    at = next(i for i, line in enumerate(lines) if line.startswith("no gradient"))
    assert [line.split()[0] for line in lines[at + 1 : at + 3]] == ["#8", "#9"]
    assert lines[at + 3] == ""


def test_the_shares_of_the_critical_path_add_up() -> None:
    lines = shown("basic_chain")
    at = next(i for i, line in enumerate(lines) if line.startswith("critical path"))
    end = next(i for i, line in enumerate(lines) if line.startswith("in all: "))
    shares = [int(found[1]) for line in lines[at:end] if (found := re.search(r"(\d+) %", line))]
    assert abs(sum(shares) - 100) <= len(shares)
    sums = [int(share) for share in re.findall(r"\((\d+) %\)", lines[end])]
    assert abs(sum(sums) - 100) <= len(sums)


def test_captured_names_are_harmless() -> None:
    console, out = file_console()
    show_lines(graph_parts(every_kind(), ()), console)
    assert visible(out.getvalue())
    assert "critical path" not in out.getvalue()


def test_lines_end_at_the_terminals_edge() -> None:
    for width in (20, 60, 100):
        console, out = terminal_console(width)
        show_lines(graph_parts(every_kind(), ()), console)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()[1:]
        assert max(map(cell_len, lines)) <= width


def test_a_context_of_which_little_is_known() -> None:
    console, out = file_console()
    show_lines(graph_parts(graph(workers=("worker:7",), backward_ns=None), ()), console)
    assert "nothing to differentiate" in out.getvalue()


def test_what_is_not_shown_is_left_out_and_what_is_said_of_the_context_stays() -> None:
    whole = every_kind()
    console, out = file_console()
    show_lines(graph_parts(replace(whole, shown=frozenset([2, 7])), ()), console)
    lines = out.getvalue().splitlines()
    assert lines[0] == graph_title(whole)
    assert [int(number) for number in re.findall(r"  #(\d+)  ", out.getvalue())] == [2, 7]
    assert not any(line.startswith("no gradient") for line in lines)
    console, out = file_console()
    show_lines(graph_parts(replace(whole, shown=frozenset([5])), ()), console)
    assert "no gradient" in out.getvalue()


def test_parts_of_a_path_keep_their_shares_of_the_whole() -> None:
    run = workload_trace("bwd_boom")
    (one,) = run.graphs
    path = run.critical_path(one)
    console, out = file_console()
    show_lines(graph_parts(replace(one, shown=frozenset()), path[4:5]), console)
    lines = out.getvalue().splitlines()
    told = lines[lines.index("parts of the critical path of 16 ms") :]
    whole = next(line for line in shown("bwd_boom") if f" #{path[4].request} " in line and "answer" in line)
    assert told[2].split() == whole.split()


def test_what_is_not_certain_of_a_path_is_said() -> None:
    """While w1 slept 30 ms, main slept 100; a callback of main asked w2."""
    run = traced(recorded("reports/latency/beside.rpclog"))
    told = []
    for one in run.graphs:
        console, out = file_console()
        show_lines(graph_parts(one, run.critical_path(one)), console)
        told.append(out.getvalue())
    late, left, own_callback = told[1], told[3], told[9]
    assert re.search(r" w1 +works +main idle +#", late)
    assert re.search(r"^not certain: 3\d\.?\d* ms", late, re.MULTILINE)
    assert "w1      works on, the context was left" in left
    assert "not certain" not in left
    assert re.search(r" main +works, between calls, or waits for #\d+", own_callback)


WORKERS = ("alpha", "beta", "gamma")


def test_arrows_go_from_lane_to_lane() -> None:
    lanes = Lanes(WORKERS)
    assert lanes.header() == "alpha       beta        gamma"
    assert lanes.arrow("alpha", "beta").rstrip() == "├───────────▶           │"
    assert lanes.arrow("gamma", "alpha").rstrip() == "◀───────────┼───────────┤"
    assert lanes.arrow("beta", "gamma", "┄").rstrip() == "│           ├┄┄┄┄┄┄┄┄┄┄┄▶"


def test_a_worker_may_call_itself() -> None:
    assert Lanes(WORKERS).arrow("beta", "beta").rstrip() == "│           ↻           │"


def test_all_lines_are_equally_wide() -> None:
    lanes = Lanes(("a", "訓練" * 9, "c" * 60))
    lines = [lanes.header(), lanes.arrow("a", "c" * 60), lanes.arrow("a", "a")]
    assert len({cell_len(line) for line in lines}) == 1


def test_too_many_workers_are_written_out() -> None:
    many = tuple(f"w{number}" for number in range(9))
    for lanes in (Lanes(many), Lanes(WORKERS, width=40)):
        assert not lanes.drawn
    assert Lanes(many).header().rstrip() == "from → to"
    assert Lanes(many).arrow("w0", "w8").rstrip() == "w0 → w8"
    assert Lanes(WORKERS, width=200).drawn


def test_a_stranger_leaves_the_lanes_empty() -> None:
    assert Lanes(WORKERS).arrow("alpha", "nobody").rstrip() == "│           │           │"


def test_nobody_has_no_lanes() -> None:
    assert Lanes(()).header() == ""
