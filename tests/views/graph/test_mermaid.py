"""The Mermaid form."""

from __future__ import annotations

import re

from msgspec.structs import replace

from rpcinspect.views.graph.mermaid import escaped, mermaid_lines
from tests.trace.runs import workload_trace
from tests.views.graphs import every_kind


def test_arrows_are_the_edges_and_gradients_in_the_order_of_time() -> None:
    (graph,) = workload_trace("bwd_boom").graphs
    lines = list(mermaid_lines([graph]))
    assert lines[0] == "sequenceDiagram"
    names = dict(re.findall(r"participant (\w+) as (\w+)", "\n".join(lines)))
    assert list(names.values()) == list(graph.workers)
    told = [
        (names[a], arrow, names[b], int(number))
        for a, arrow, b, number in re.findall(r"(g0w\d)(->>|-->>|--x)(g0w\d): #35;(\d+)", "\n".join(lines))
    ]
    edges = [(e.sender, "->>", e.receiver, e.forward) for e in graph.edges]
    backward = [(e.receiver, "--x", e.sender, g.message) for e in graph.edges for g in e.gradients]
    assert told == sorted([*edges, *backward], key=lambda arrow: arrow[3])


def test_captured_names_hold_no_sign_of_mermaids() -> None:
    assert escaped('a;b#"<br>{}') == "a#59;b#35;#34;#60;br#62;#123;#125;"
    for line in mermaid_lines([every_kind()]):
        label = line.partition(": ")[2] or line.partition(" as ")[2]
        assert re.fullmatch(r"(?:[^#;\"<>{}%\\:\n]|#\d+;)*", label), line


def test_several_jobs_are_one_picture() -> None:
    lines = list(mermaid_lines([every_kind(), every_kind()]))
    assert lines.count("sequenceDiagram") == 1
    assert sum("participant" in line for line in lines) == 4


def test_an_edge_without_a_gradient_says_so() -> None:
    lines = [line for line in mermaid_lines([every_kind()]) if "no gradient" in line]
    assert len(lines) == 1
    assert "#35;5 " in lines[0]


def test_arrows_that_are_not_shown_are_not_drawn() -> None:
    graph = every_kind()
    shown = replace(graph, shown=frozenset([graph.edges[0].forward]))
    lines = list(mermaid_lines([graph, shown], "a <note>"))
    assert sum(line.startswith("  g0") for line in lines) == len(graph.edges) + len(graph.gradients)
    assert sum(line.startswith("  g1") for line in lines) == 1
    assert lines[-1] == "  Note over g1w0,g1w1: a #60;note#62;"
