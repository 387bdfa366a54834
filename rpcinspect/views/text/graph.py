"""The autograd graph of a context on a terminal: workers as lanes, edges and gradients as arrows in the order
of time; then the edges that got no gradient, and what the context's duration consists of.

In: a `ContextGraph` and its critical path. Out: lines of printable text, and tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from rpcinspect.fields.phrases import duration, end_label, join_ends, packed, printable
from rpcinspect.run.critical_path import Segment
from rpcinspect.run.graph import ContextGraph
from rpcinspect.session.words import numbers
from rpcinspect.views.columns import Column, Links, table
from rpcinspect.views.graph_words import (
    edge_words,
    gradient_words,
    graph_title,
    passing_words,
    tensors_words,
    what_words,
)
from rpcinspect.views.text.columns import Line, Part
from rpcinspect.views.text.table import cut_line, pad

KINDS = {
    "request": "request on the wire",
    "answer": "answer on the wire",
    "busy": "works",
    "pause": "works, between calls",
    "unanswered": "never answers",
    "outlasting": "works on, the context was left",
}

TAKEN = {"BACKWARD_AUTOGRAD_RESP", "CLEANUP_AUTOGRAD_CONTEXT_RESP"}


def graph_parts(
    graph: ContextGraph, path: Sequence[Segment], *, several_jobs: bool = False
) -> Iterator[Part]:
    """Yields the title of a context, its messages, edges without a gradient, and the critical path."""
    yield graph_title(graph, several_jobs), "bold"
    yield "", ""
    yield lambda width: _messages(graph, width)
    yield from _without(graph)
    yield from _path(path, graph)


def _messages(graph: ContextGraph, width: int | None) -> Iterator[Line]:
    lanes = Lanes(graph.workers, width)
    end = max([graph.end_ns, *(m.end_ns for m in graph.passing)]) - graph.begin_ns
    time_width = max(len("ms"), len(f"{end / 1e6:.3f}"))
    rows: list[tuple[int, int, str, str, str]] = []
    """(index, time, arrow, words, style)."""
    missing = {edge.forward for edge in graph.missing}
    for edge in graph.edges:
        arrow = lanes.arrow(edge.sender, edge.receiver)
        style = "red" if edge.forward in missing else ""
        rows.append((edge.forward, edge.begin_ns, arrow, edge_words(edge), style))
        for gradient in edge.gradients:
            arrow = lanes.arrow(edge.receiver, edge.sender, "┄")
            style = "red" if gradient.failed else "yellow" if gradient.zero else "green"
            rows.append((gradient.message, gradient.begin_ns, arrow, gradient_words(edge, gradient), style))
    for message in graph.passing:
        if message.kind in TAKEN and graph.shown is None:
            continue  # it says nothing but that the request was taken
        arrow = lanes.arrow(message.source, message.destination, "╌")
        style = "red" if message.failed else "dim"
        rows.append((message.message, message.begin_ns, arrow, passing_words(message), style))
    number_width = max((len(str(row[0])) for row in rows), default=1) + 1
    yield cut_line(f"{'ms':>{time_width}}  {lanes.header()}  {'#':>{number_width}}", width), "bold"
    for index, time_ns, arrow, words, style in sorted(row for row in rows if graph.shows(row[0])):
        time = f"{(time_ns - graph.begin_ns) / 1e6:.3f}"
        line = f"{time:>{time_width}}  {arrow}  {f'#{index}':>{number_width}}  {words}"
        yield cut_line(line, width), style


MISSING = (
    Column(title="no gradient", of="forward", words=lambda index: Links((index,))),
    Column(title="edge", of="autograd_message_id", words=packed),
    Column(
        title="from → to", cell=lambda edge, _: join_ends(printable(edge.sender), printable(edge.receiver))
    ),
    Column(title="function", of="what", words=what_words, gives_way=True),
    Column(title="tensors", of="tensors", words=tensors_words),
)


def _without(graph: ContextGraph) -> Iterator[Part]:
    """The edges that a pass left without a gradient."""
    missing = [edge for edge in graph.missing if graph.shows(edge.forward)]
    if missing:
        yield "", ""
        yield table(MISSING, missing, style=lambda _: "bad")


def _share(segment: Segment, graph: ContextGraph) -> str:
    total = graph.end_ns - graph.begin_ns
    return f"{100 * segment.took_ns / total:.0f} %" if total else ""


def _exchange(segment: Segment, _: ContextGraph) -> str:
    return "" if segment.request is None else f"#{segment.request} {what_words(segment.what or '')}"


def _does(segment: Segment, _: ContextGraph) -> str:
    words, waits = KINDS[segment.kind], segment.or_waits_for
    return words if not waits else f"{words}, or waits for {numbers(waits)}"


PATH = (
    Column(title="ms", cell=lambda one, graph: f"{(one.begin_ns - graph.begin_ns) / 1e6:.3f}", right=True),
    Column(title="took", of="took_ns", words=duration, right=True),
    Column(title="share", cell=_share, right=True),
    Column(title="worker", of="worker", words=printable),
    Column(title="does", cell=_does),
    Column(title="if", of="if_idle", words=lambda idle: _idle(idle), unless="empty"),
    Column(title="exchange", cell=_exchange, gives_way=True),
)


def _path(path: Sequence[Segment], graph: ContextGraph) -> Iterator[Part]:
    """The critical path or parts of it, and its sums by worker."""
    if not path:
        return
    total = graph.end_ns - graph.begin_ns
    yield "", ""
    parts = "critical path," if graph.shown is None else "parts of the critical path of"
    yield f"{parts} {duration(total)}", "bold"
    yield table(PATH, path, graph)
    yield f"in all: {_sums(path, total)}", ""
    doubtful = sum(one.took_ns for one in path if one.if_idle or one.or_waits_for)
    if doubtful:
        yield f"not certain: {duration(doubtful)} ({100 * doubtful / total:.0f} %)", ""


def _idle(workers: Sequence[str]) -> str:
    return f"{', '.join(map(printable, workers))} idle" if workers else ""


def _sums(path: Sequence[Segment], total: int) -> str:
    sums: dict[str, int] = defaultdict(int)
    for segment in path:
        wire = segment.kind in ("request", "answer")
        sums["on the wire" if wire else printable(segment.worker)] += segment.took_ns
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {duration(took)} ({100 * took / total:.0f} %)" for name, took in ordered)


MAX_LANES = 8
NEAREST = 12
GAP = 3


class Lanes:
    """The layout for some workers; `width` None does not limit it."""

    def __init__(self, workers: Sequence[str], width: int | None = None) -> None:
        labels = [end_label(worker) for worker in workers]
        self._at: dict[str, int] = {}
        at = 0
        for worker, label in zip(workers, labels, strict=True):
            self._at[worker] = at
            at += max(NEAREST, cell_len(label) + GAP)
        self._labels = labels
        self._size = max([place + 1 for place in self._at.values()] or [0])
        last = cell_len(labels[-1]) if labels else 0
        self._total = max(0, self._size - 1 + last)
        self.drawn = len(workers) <= MAX_LANES and (width is None or self._total <= width // 2)
        if not self.drawn:
            ends = sorted(map(cell_len, labels))[-2:]
            self._total = sum(ends) + cell_len(join_ends("", ""))

    def header(self) -> str:
        """Returns the names above their lanes."""
        if not self.drawn:
            return pad("from → to", self._total)
        line = ""
        for place, label in zip(self._at.values(), self._labels, strict=True):
            line = pad(line, place) + label
        return pad(line, self._total)

    def arrow(self, source: str, destination: str, line: str = "─") -> str:
        """A message."""
        if not self.drawn:
            return pad(join_ends(end_label(source), end_label(destination)), self._total)
        cells = [" "] * self._size
        for place in self._at.values():
            cells[place] = "│"
        start, end = self._at.get(source), self._at.get(destination)
        if start is not None and end is not None:
            low, high = min(start, end), max(start, end)
            for place in range(low + 1, high):
                cells[place] = "┼" if cells[place] == "│" else line
            cells[start] = "├" if start < end else "┤"
            cells[end] = "↻" if start == end else "▶" if start < end else "◀"
        return pad("".join(cells), self._total)
