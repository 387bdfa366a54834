"""Autograd contexts, one a line: who made them, who took part, which gradients came, their clean-up.

In: `ContextGraph`s. Out: lines of printable text on a console.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from rpcinspect.fields.phrases import amount, duration, packed, shorten
from rpcinspect.run.graph import ContextGraph
from rpcinspect.views.text.columns import Columns, show_lines
from rpcinspect.views.text.table import end_label, write_line

MAX_WORKERS = 60


def show_contexts(graphs: Sequence[ContextGraph], start_ns: int, console: Console) -> None:
    """Prints the table; times count from `start_ns`, the first message of the capture."""
    if not graphs:
        write_line(console, "no autograd context was seen")
        return
    several = len({graph.job for graph in graphs}) > 1
    header = [*(["job"] if several else []), "context", "creator", "seconds", "took", "edges", "gradients"]
    header += ["zero", "bytes", "clean-up", "workers"]
    rows = [[*([str(graph.job)] if several else []), *_row(graph, start_ns)] for graph in graphs]
    right = range(2 + several, 8 + several)
    show_lines([Columns(header, rows, right, gives_way=9 + several, styles=map(_style, graphs))], console)


def _style(graph: ContextGraph) -> str:
    """Red where a gradient never came, or made its receiver fail."""
    return "red" if graph.came < graph.expected or any(g.failed for g in graph.gradients) else ""


def _came(graph: ContextGraph) -> str:
    """How many edges got a gradient, and how many gradients were answered by an error."""
    if graph.backward_ns is None:
        return "no pass"
    failed = sum(gradient.failed for gradient in graph.gradients)
    return f"{graph.came:,} of {graph.expected:,}" + (f" ({failed:,} ✗)" if failed else "")


def _row(graph: ContextGraph, start_ns: int) -> list[str]:
    gradients = graph.gradients
    carried = sum(edge.nbytes for edge in graph.edges) + sum(gradient.nbytes for gradient in gradients)
    cleanup = ", ".join(f"#{index}" for index in graph.cleanup[:3]) + ("…" if len(graph.cleanup) > 3 else "")
    return [
        packed(graph.context_id),
        end_label(graph.creator),
        f"{(graph.begin_ns - start_ns) / 1e9:.6f}",
        duration(graph.end_ns - graph.begin_ns),
        f"{len(graph.edges):,}",
        _came(graph),
        f"{sum(gradient.zero for gradient in gradients):,}",
        amount(carried),
        cleanup or "none seen",
        shorten(", ".join(map(end_label, graph.workers)), MAX_WORKERS),
    ]
