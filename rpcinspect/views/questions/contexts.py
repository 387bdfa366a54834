"""Autograd contexts: who made them, who took part, which gradients came, their cleanup; and their graphs.

In: a run. Out: a table with a line for each context; `context` lines of JSON, which are the contract's with
what came of each edge, and those of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rpcinspect.fields.phrases import amount, end_label, shorten
from rpcinspect.fields.plain import Json, Picked, each
from rpcinspect.run.critical_path import Segment
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.run import RunModel
from rpcinspect.views.columns import Column, Links, Style, json_of, table
from rpcinspect.views.questions.question import Question
from rpcinspect.views.questions.session import CONTEXT, EDGES, SPAN, edge_json
from rpcinspect.views.text.columns import Part
from rpcinspect.views.text.graph import graph_parts

MAX_WORKERS = 60
TENSOR = "dtype shape layout requires_grad nbytes"


def _came(graph: ContextGraph, _: RunModel) -> str:
    """How many edges got a gradient."""
    return "no pass" if graph.backward_ns is None else f"{graph.came:,} of {graph.expected:,}"


def _workers(graph: ContextGraph, _: RunModel) -> str:
    return shorten(", ".join(map(end_label, graph.workers)), MAX_WORKERS)


def _edges(graph: ContextGraph) -> list[Json]:
    return [{**edge_json(edge), **_more(edge)} for edge in graph.edges if graph.shows_edge(edge)]


EVERY_EDGE = Column("edges", of=_edges)
COLUMNS = (
    *(EVERY_EDGE if column is EDGES else column for column in CONTEXT),
    *SPAN,
    Column(title="edges", of=lambda graph: len(graph.edges), right=True),
    Column(title="gradients", cell=_came, right=True),
    Column(title="failed", of=lambda graph: graph.failed or None, right=True, unless="empty"),
    Column("zero_gradients", of="zero", title="zero", right=True),
    Column(title="bytes", of="nbytes", words=amount, right=True),
    Column(title="cleanup", of="cleanup", words=lambda its: Links(its) if its else "none seen"),
    Column(title="workers", cell=_workers, gives_way=True),
)
"""Of graphs; the first two parts also of the records of a session."""

_gradient = Picked(
    "message answer begin_ns end_ns tensors nbytes retain_graph failed",
    tensors=each(Picked(f"{TENSOR} zero")),
)
_more = Picked(
    "answers what begin_ns end_ns tensors nbytes gradients",
    tensors=each(Picked(TENSOR)),
    gradients=each(_gradient),
)
_passing = Picked("message src=source dst=destination request answers what type=kind begin_ns end_ns failed")
_segment = Picked("does=kind worker request what begin_ns end_ns if_idle or_waits_for")
context_json = json_of(COLUMNS, "context")
"""The contract's `context` line, with what came of each edge."""


def graph_json(graph: ContextGraph, path: Sequence[Segment]) -> Iterator[Json]:
    """A context with the messages to be shown: `context` with their edges, then `passing` and `segment`
    lines.
    """
    yield context_json(graph)
    of = {"context_id": graph.context_id, "job": graph.job}
    for message in graph.passing:
        if graph.shows(message.message):
            yield {"kind": "passing", **of, **_passing(message)}
    for segment in path:
        yield {"kind": "segment", **of, **_segment(segment)}


def _style(graph: ContextGraph) -> Style:
    """Whether a gradient never came, or made its receiver fail."""
    return "bad" if graph.came < graph.expected or graph.failed else ""


def _show(run: RunModel, _: bool) -> Iterator[Part]:
    if run.graphs:
        yield table(COLUMNS, run.graphs, run, style=_style)
    else:
        yield "no autograd context was seen", ""


QUESTION = Question(
    noun="context",
    kinds=("context",),
    count=lambda run, _: len(run.graphs),
    show=_show,
    json=lambda run: map(context_json, run.graphs),
)


def graph_question(graphs_of: Callable[[RunModel], Sequence[ContextGraph]]) -> Question:
    """Returns the question for the graphs that `graphs_of` picks of a run, each with its critical path."""

    def count(run: RunModel, _: bool) -> int:
        return sum(graph.shows(message) for graph in graphs_of(run) for message in graph.messages)

    def show(run: RunModel, _: bool) -> Iterator[Part]:
        graphs = graphs_of(run)
        for number, graph in enumerate(graphs):
            if number:
                yield "", ""
            yield from graph_parts(graph, run.critical_path(graph), several_jobs=len(graphs) > 1)

    def json(run: RunModel) -> list[Json]:
        return [line for one in graphs_of(run) for line in graph_json(one, run.critical_path(one))]

    return Question("message", ("context", "passing", "segment"), count, show, json, shows=lambda run: True)
