"""The autograd graph of a context for Mermaid, which GitHub and GitLab draw: a sequence diagram.

In: `ContextGraph`s. Out: text. Solid arrows are edges, dotted ones gradients. What Mermaid would read as its
own signs is written as entities.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rpcinspect.run.graph import ContextGraph, GraphEdge
from rpcinspect.views.graph.words import edge_words, gradient_words, graph_title
from rpcinspect.views.phrases import printable

_SIGNS = re.compile(r"[^\w .,()\[\]/+*=→✗-]")
"""Everything but what no version of Mermaid takes for a sign of its own."""


def mermaid_lines(graphs: Sequence[ContextGraph], note: str | None = None) -> Iterator[str]:
    """One diagram; of several contexts, which only several jobs have under one id, all are in it. `note` is
    written below it.
    """
    yield "sequenceDiagram"
    for number, graph in enumerate(graphs):
        for lane, worker in enumerate(graph.workers):
            yield f"  participant g{number}w{lane} as {escaped(printable(worker))}"
    for number, graph in enumerate(graphs):
        names = {worker: f"g{number}w{lane}" for lane, worker in enumerate(graph.workers)}
        if not names:
            continue
        ends = ",".join(dict.fromkeys((next(iter(names.values())), list(names.values())[-1])))
        yield f"  Note over {ends}: {escaped(graph_title(graph, len(graphs) > 1))}"
        for _, line in sorted(_arrows(graph, names)):
            yield f"  {line}"
        if note is not None and number == len(graphs) - 1:
            yield f"  Note over {ends}: {escaped(note)}"


def _arrows(graph: ContextGraph, names: dict[str, str]) -> Iterator[tuple[int, str]]:
    missing = {edge.forward for edge in graph.missing}
    for edge in graph.edges:
        sender, receiver = names[edge.sender], names[edge.receiver]
        if graph.shows(edge.forward):
            yield edge.forward, f"{sender}->>{receiver}: {_edge(edge, edge.forward in missing)}"
        for gradient in filter(graph.shows_gradient, edge.gradients):
            arrow = "--x" if gradient.failed else "-->>"
            words = escaped(f"#{gradient.message} {gradient_words(edge, gradient)}")
            yield gradient.message, f"{receiver}{arrow}{sender}: {words}"


def _edge(edge: GraphEdge, missing: bool) -> str:
    return escaped(f"#{edge.forward} {edge_words(edge)}{', no gradient' if missing else ''}")


def escaped(text: str) -> str:
    """Text in which Mermaid finds no sign of its own."""
    return _SIGNS.sub(lambda found: f"#{ord(found[0])};", text)
