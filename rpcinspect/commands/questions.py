"""`rpcinspect decode` where it is asked about the whole run: `--graph`, `--contexts`, `--latency`, …, or for
a file that tells of it and that other programs open: `--format html` and `perfetto`.

In: what the command line asked for, a filter or none. Out: an answer on standard output or in a file, and the
exit code. With a filter the answer is narrowed to what matching messages take part in, and says so.

To add a format: a member of `cli.decode.DecodeFormat`; its name in `decode_request.EXPORTS`, by which
`mistake` refuses what makes no sense with it; and its pieces below, of a run that is in memory. One that
needs no such run gets a line of its own in `commands.decode.run`, and nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from rpcinspect import exit_codes
from rpcinspect.commands.decode_request import Request
from rpcinspect.commands.output import open_console, open_output, say, say_if_empty
from rpcinspect.commands.passes import read_run
from rpcinspect.commands.progress import writing_bar
from rpcinspect.export.dot import dot_lines
from rpcinspect.fields.phrases import packed, printable_json, read_packed, some
from rpcinspect.pipeline import Decoding
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.run import Run
from rpcinspect.views.jsonl.document import answer_pieces
from rpcinspect.views.jsonl.lines import filter_json, lines
from rpcinspect.views.jsonl.questions import (
    closings_json,
    contexts_json,
    device_maps_json,
    graph_json,
    latency_json,
    profile_json,
    rrefs_json,
)
from rpcinspect.views.text.closings import show_closings
from rpcinspect.views.text.contexts import show_contexts
from rpcinspect.views.text.device_maps import show_device_maps
from rpcinspect.views.text.graph import show_graph
from rpcinspect.views.text.latency import show_latency
from rpcinspect.views.text.profile import show_profile
from rpcinspect.views.text.rrefs import show_rrefs
from rpcinspect.views.text.table import write_line

if TYPE_CHECKING:
    from rpcinspect.filter.selection import Filter
    from rpcinspect.filter.shown import Shown

Json = dict[str, Any]
MAX_NAMED = 8
"""Contexts that are named where another one was asked for."""


class Answer(Struct, frozen=True):
    """One way to answer: what of, and how it is written."""

    noun: str
    """What the answer tells of."""
    count: Callable[[Run, Request], int]
    """How many of these."""
    show: Callable[[Run, Request, Console], None]
    json: Callable[[Run, Request], Iterable[Json]]


def answer(request: Request, decoding: Decoding, chosen: Filter | None, stack: ExitStack) -> int | None:
    """Reads everything and answers; the exit code only where there is nothing to tell of."""
    (name,) = request.questions
    run, shown = read_run(decoding, chosen)
    say_if_empty(run.session)
    if request.graph is not None and not _graphs(run, request):
        say(f"--graph {request.graph}: there is no such context; {_known(run.graphs)}")
        return exit_codes.USAGE
    part = run if shown is None else run.narrowed(shown.rows, shown.touched)
    if request.json:
        _write_json(ANSWERS[name], part, shown, request, stack)
    else:
        console = stack.enter_context(open_console(request.output))
        _show(ANSWERS[name], part, shown, request, console)
    return None


def _write_json(asked: Answer, run: Run, shown: Shown | None, request: Request, stack: ExitStack) -> None:
    objects = asked.json(run, request)
    if shown is not None:
        name = f"{asked.noun.replace(' ', '_')}s"
        some, of = asked.count(run, request), asked.count(run.whole, request)
        objects = chain(objects, [{"kind": "filter", **filter_json(shown, {name: some}, {name: of})}])
    (question,) = request.questions
    pieces = answer_pieces(question, objects) if request.format == "json" else (lines(iter(objects)),)
    stack.enter_context(open_output(request.output)).writelines(map(printable_json, pieces))


def _show(asked: Answer, run: Run, shown: Shown | None, request: Request, console: Console) -> None:
    if shown is None:
        asked.show(run, request, console)
        return
    some, of = asked.count(run, request), asked.count(run.whole, request)
    if request.format == "dot":
        _draw(run, request, console, shown.words(some, of, "arrow"))
        return
    hides = request.latency and run.latency.timings  # what it leaves out, it counts
    if some or not of or request.graph is not None or hides:
        asked.show(run, request, console)
        console.file.write("\n")
    words = Text(shown.words(some, of, asked.noun), style="bold")
    console.print(words, soft_wrap=not console.is_terminal)


# --- each question ------------------------------------------------------------------------------------------


def _graphs(run: Run, request: Request) -> tuple[ContextGraph, ...]:
    """What `--graph` names."""
    assert request.graph is not None
    wanted = read_packed(request.graph)
    return () if wanted is None else run.graphs_of(wanted)


def _known(graphs: Sequence[ContextGraph]) -> str:
    if not graphs:
        return "no autograd context was seen"
    names = list(dict.fromkeys(packed(graph.context_id) for graph in graphs))
    return f"there {'are' if len(names) > MAX_NAMED else 'is'} {some(names, MAX_NAMED)}"


def _graph_messages(run: Run, request: Request) -> int:
    """A drawing shows edges and gradients only."""
    graphs = _graphs(run, request)
    if request.format != "dot":
        return sum(graph.shows(message) for graph in graphs for message in graph.messages)
    edges = [(graph, edge) for graph in graphs for edge in graph.edges]
    gradients = sum(graph.shows_gradient(gradient) for graph, edge in edges for gradient in edge.gradients)
    return gradients + sum(graph.shows(edge.forward) for graph, edge in edges)


def _show_graph(run: Run, request: Request, console: Console) -> None:
    if request.format == "dot":
        _draw(run, request, console)
        return
    graphs = _graphs(run, request)
    for number, graph in enumerate(graphs):
        if number:
            write_line(console, "")
        show_graph(graph, run.critical_path(graph), console, several_jobs=len(graphs) > 1)


def _draw(run: Run, request: Request, console: Console, note: str | None = None) -> None:
    for line in dot_lines(_graphs(run, request), note):
        console.file.write(f"{line}\n")


def _graph_json(run: Run, request: Request) -> Iterable[Json]:
    for graph in _graphs(run, request):
        yield from graph_json(graph, run.critical_path(graph))


def _exchanges(run: Run, request: Request) -> int:
    """The table leaves out housekeeping."""
    every = request.json or request.show_all
    return sum(every or not timing.call.housekeeping for timing in run.latency.timings)


def _start_ns(run: Run) -> int:
    """What times count from: the first message; without any, the first packet."""
    session = run.session
    packets = (capture.first_time_ns for capture in session.captures if capture.first_time_ns is not None)
    return min(session.messages.time_ns or packets, default=0)


ANSWERS: dict[str, Answer] = {
    "graph": Answer("message", _graph_messages, _show_graph, _graph_json),
    "contexts": Answer(
        "context",
        lambda run, _: len(run.graphs),
        lambda run, _, console: show_contexts(run.graphs, _start_ns(run), console),
        lambda run, _: contexts_json(run.graphs),
    ),
    "latency": Answer(
        "exchange",
        _exchanges,
        lambda run, request, console: show_latency(run.latency, console, show_all=request.show_all),
        lambda run, _: latency_json(run.latency),
    ),
    "profile": Answer(
        "profiled call",
        lambda run, _: len(run.profiles),
        lambda run, request, console: show_profile(run.profiles, console, every_call=request.show_all),
        lambda run, _: profile_json(run.profiles),
    ),
    "rrefs": Answer(
        "RRef",
        lambda run, _: len(run.rrefs),
        lambda run, request, console: show_rrefs(run.rrefs, run.calls, console, every_fork=request.show_all),
        lambda run, _: rrefs_json(run.rrefs),
    ),
    "device-maps": Answer(
        "device map",
        lambda run, _: len(run.device_maps),
        lambda run, _, console: show_device_maps(run.device_maps, console),
        lambda run, _: device_maps_json(run.device_maps),
    ),
    "closings": Answer(
        "pipe",
        lambda run, _: run.closings.pipes,
        lambda run, _, console: show_closings(run.closings, _start_ns(run), console),
        lambda run, _: closings_json(run.closings),
    ),
}
"""By the name of the option."""


def export(request: Request, decoding: Decoding, chosen: Filter | None, stack: ExitStack) -> None:
    """Reads everything and writes it."""
    run, shown = read_run(decoding, chosen)
    say_if_empty(run.session)
    output = stack.enter_context(open_output(request.output))
    written = 0
    with writing_bar(request.output) as progress:
        for piece in _pieces(run, shown, request.format):
            written += output.write(piece)
            progress(written, None)


def _pieces(run: Run, shown: Shown | None, form: str) -> Iterator[bytes]:
    if form == "html":
        from rpcinspect.views.page.html_page import trace_html

        return trace_html(run, shown)
    from rpcinspect.export.perfetto.trace import perfetto_pieces

    return map(printable_json, perfetto_pieces(run, shown))
