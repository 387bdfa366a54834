"""The DOT form; Graphviz reads it where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from msgspec.structs import replace

from rpcinspect.export.dot import dot_lines, quoted
from tests.checks.runs import workload_trace
from tests.views.graphs import HOSTILE, every_kind


def test_every_edge_joins_a_send_and_a_recv_function() -> None:
    (graph,) = workload_trace("basic_chain").graphs
    text = "\n".join(dot_lines([graph]))
    forward = re.findall(r"g0_s(\d+) -> g0_r(\d+)", text)
    backward = re.findall(r"g0_r(\d+) -> g0_s(\d+)", text)
    assert [int(a) for a, b in forward if a == b] == [edge.forward for edge in graph.edges]
    assert len(backward) == len(graph.gradients)
    assert text.count("subgraph") == 1 + len(graph.workers)
    for edge in graph.edges:
        assert len(re.findall(rf"^ *g0_s{edge.forward} \[", text, re.MULTILINE)) == 1
        assert len(re.findall(rf"^ *g0_r{edge.forward} \[", text, re.MULTILINE)) == 1


def test_edges_without_a_gradient_are_red() -> None:
    text = "\n".join(dot_lines([every_kind()]))
    (line,) = [line for line in text.splitlines() if "no gradient" in line]
    assert "g0_s5 -> g0_r5" in line
    assert "color=red" in line


def test_strings_are_closed_where_they_should_be() -> None:
    assert quoted('a"b\\c\nd') == '"a\\"b\\\\c\\nd"'
    for line in dot_lines([every_kind()]):
        assert line.isprintable()
        assert re.sub(r'"(?:[^"\\]|\\.)*"', "", line).count('"') == 0
    assert HOSTILE not in "\n".join(dot_lines([every_kind()]))


def test_several_jobs_are_one_picture() -> None:
    text = "\n".join(dot_lines([every_kind(), every_kind()]))
    assert text.count("digraph") == 1
    assert "of job 0" in text
    assert "g1_s1 -> g1_r1" in text


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_it() -> None:
    for graphs in ([every_kind()], list(workload_trace("bwd_boom").graphs), []):
        text = "\n".join(dot_lines(graphs)).encode()
        done = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, timeout=60, check=True)
        assert done.stderr == b""
        assert b"<svg" in done.stdout


def test_arrows_that_are_not_shown_are_not_drawn() -> None:
    graph = every_kind()
    gradient, last = graph.gradients
    text = "\n".join(dot_lines([replace(graph, shown=frozenset([gradient.message]))], 'only "this"'))
    assert text.count("->") == 1
    assert f"#{gradient.message} +" in text
    assert '  label="only \\"this\\"";' in text.splitlines()
    answered = "\n".join(dot_lines([replace(graph, shown=frozenset([last.answer or -1]))]))
    assert answered.count("->") == 1
    assert len(re.findall(r"\[label=\"(?:send|recv)", answered)) == 2
