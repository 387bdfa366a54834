"""The autograd graph of a context for Graphviz: a cluster for each worker with its send and recv functions.

In: `ContextGraph`s. Out: text in the DOT language. Captured names stand in quoted strings, escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.fields.phrases import amount, packed, printable
from rpcinspect.run.graph import ContextGraph, GraphEdge, GraphGradient
from rpcinspect.views.graph_words import graph_title, tensors_words, what_words


def dot_lines(graphs: Sequence[ContextGraph], note: str | None = None) -> Iterator[str]:
    """Yields one digraph with all graphs: only several jobs have several contexts under one id. `note` is
    written below."""
    yield "digraph autograd {"
    yield "  rankdir=LR;"
    yield '  node [shape=box, fontname="monospace", fontsize=10];'
    yield '  edge [fontname="monospace", fontsize=9];'
    if note is not None:
        yield f"  label={quoted(note)};"
    for number, graph in enumerate(graphs):
        yield from _graph(graph, f"g{number}", several_jobs=len(graphs) > 1)
    yield "}"


def _graph(graph: ContextGraph, prefix: str, *, several_jobs: bool) -> Iterator[str]:
    title = quoted(graph_title(graph, several_jobs))
    yield f"  subgraph {quoted(f'cluster_{prefix}')} {{"
    yield f"    label={title};"
    drawn = [edge for edge in graph.edges if graph.shows_edge(edge)]
    for lane, worker in enumerate(graph.workers):
        yield f"    subgraph {quoted(f'cluster_{prefix}_{lane}')} {{"
        yield f"      label={quoted(printable(worker))};"
        yield f"      {prefix}_{lane} [style=invis, shape=point];"
        for edge in drawn:
            name = packed(edge.autograd_message_id)
            if edge.sender == worker:
                label = quoted(f"send {name}\n{_what(edge)}")
                yield f"      {prefix}_s{edge.forward} [label={label}];"
            if edge.receiver == worker:
                yield f"      {prefix}_r{edge.forward} [label={quoted(f'recv {name}')}];"
        yield "    }"
    missing = {edge.forward for edge in graph.missing}
    for edge in drawn:
        yield from _edge(
            graph, edge, edge.forward in missing, f"{prefix}_s{edge.forward}", f"{prefix}_r{edge.forward}"
        )
    yield "  }"


def _what(edge: GraphEdge) -> str:
    return what_words(edge.what) if edge.answers is None else f"result of {what_words(edge.what)}"


def _edge(graph: ContextGraph, edge: GraphEdge, missing: bool, send: str, recv: str) -> Iterator[str]:
    if graph.shows(edge.forward):
        grads = tensors_words([tensor for tensor in edge.tensors if tensor.requires_grad])
        label = f"#{edge.forward} +{_ms(edge.begin_ns - graph.begin_ns)}\n{grads}, {amount(edge.nbytes)}"
        if missing:
            label += "\nno gradient"
        colour = ", color=red, fontcolor=red" if missing else ""
        yield f"    {send} -> {recv} [label={quoted(label)}{colour}];"
    for gradient in edge.gradients:
        if not graph.shows_gradient(gradient):
            continue
        label = f"#{gradient.message} +{_ms(gradient.begin_ns - graph.begin_ns)}\n{_gradient(gradient)}"
        colour = "red" if gradient.failed else "orange" if gradient.zero else "darkgreen"
        style = f"style=dashed, constraint=false, color={colour}, fontcolor={colour}"
        yield f"    {recv} -> {send} [label={quoted(label)}, {style}];"


def _gradient(gradient: GraphGradient) -> str:
    words = f"{tensors_words(gradient.tensors)}, {amount(gradient.nbytes)}"
    words += ", all zeros" if gradient.zero else ""
    return f"{words}, failed" if gradient.failed else words


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.3f} ms"


def quoted(text: str) -> str:
    """A string of the DOT language; line breaks are ours, everything else is shown as it is."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
