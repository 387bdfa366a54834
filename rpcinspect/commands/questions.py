"""`rpcinspect decode` where it is asked about the whole run: `--graph`, `--contexts`, `--latency`, ….

In: what the command line asked for, a filter or none. Out: an answer on standard output or in a file, and the
exit code. With a filter the answer is narrowed to what matching messages take part in, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from rpcinspect import exit_codes
from rpcinspect.commands.decode_request import Request
from rpcinspect.commands.output import open_console, open_output, say
from rpcinspect.commands.whole_run import read_run
from rpcinspect.pipeline import Decoding
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.run import Run
from rpcinspect.views.empty import empty_line
from rpcinspect.views.phrases import packed, read_packed

if TYPE_CHECKING:
    from rpcinspect.filter.selection import Filter
    from rpcinspect.views.shown import Shown

Json = dict[str, Any]


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
    reason = empty_line(run.session)
    if reason is not None:
        say(reason)
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
    from rpcinspect.commands.objects import write_answer
    from rpcinspect.views.contract.jsonl import filter_json

    objects = asked.json(run, request)
    if shown is not None:
        name = f"{asked.noun.replace(' ', '_')}s"
        some, of = asked.count(run, request), asked.count(run.whole, request)
        objects = chain(objects, [{"kind": "filter", **filter_json(shown, {name: some}, {name: of})}])
    write_answer(objects, request, stack.enter_context(open_output(request.output)))


def _show(asked: Answer, run: Run, shown: Shown | None, request: Request, console: Console) -> None:
    if shown is None:
        asked.show(run, request, console)
        return
    some, of = asked.count(run, request), asked.count(run.whole, request)
    if request.format == "dot":
        _draw(run, request, console, shown.words(some, of, "arrow"))
        return
    if some or not of or request.graph is not None:
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
    shown = ", ".join(names[:8])
    return f"there are {shown} and {len(names) - 8:,} more" if len(names) > 8 else f"there is {shown}"


def _graph_messages(run: Run, request: Request) -> int:
    """A drawing shows edges and gradients only."""
    graphs = _graphs(run, request)
    if request.format != "dot":
        return sum(graph.shows(message) for graph in graphs for message in graph.messages)
    edges = [(graph, edge) for graph in graphs for edge in graph.edges]
    gradients = sum(graph.shows_gradient(gradient) for graph, edge in edges for gradient in edge.gradients)
    return gradients + sum(graph.shows(edge.forward) for graph, edge in edges)


def _show_graph(run: Run, request: Request, console: Console) -> None:
    from rpcinspect.views.text.graph import show_graph
    from rpcinspect.views.text.table import write_line

    if request.format == "dot":
        _draw(run, request, console)
        return
    graphs = _graphs(run, request)
    for number, graph in enumerate(graphs):
        if number:
            write_line(console, "")
        show_graph(graph, run.critical_path(graph), console, several_jobs=len(graphs) > 1)


def _draw(run: Run, request: Request, console: Console, note: str | None = None) -> None:
    from rpcinspect.views.graph.dot import dot_lines

    for line in dot_lines(_graphs(run, request), note):
        console.file.write(f"{line}\n")


def _graph_json(run: Run, request: Request) -> Iterable[Json]:
    from rpcinspect.views.contract.trace import graph_json

    for graph in _graphs(run, request):
        yield from graph_json(graph, run.critical_path(graph))


def _show_contexts(run: Run, request: Request, console: Console) -> None:
    from rpcinspect.views.text.contexts import show_contexts

    show_contexts(run.graphs, _start_ns(run), console)


def _contexts_json(run: Run, request: Request) -> Iterable[Json]:
    from rpcinspect.views.contract.trace import contexts_json

    return contexts_json(run.graphs)


def _exchanges(run: Run, request: Request) -> int:
    """The table leaves out the agents' own calls."""
    return sum(request.json or not timing.control for timing in run.latency.timings)


def _show_latency(run: Run, request: Request, console: Console) -> None:
    from rpcinspect.views.text.latency import show_latency

    show_latency(run.latency, console, show_all=request.show_all)


def _latency_json(run: Run, request: Request) -> Iterable[Json]:
    from rpcinspect.views.contract.trace import latency_json

    return latency_json(run.latency)


def _show_profile(run: Run, request: Request, console: Console) -> None:
    from rpcinspect.views.text.profile import show_profile

    show_profile(run.profiles, console, every_call=request.show_all)


def _profile_json(run: Run, request: Request) -> Iterable[Json]:
    from rpcinspect.views.contract.trace import profile_json

    return profile_json(run.profiles)


def _show_rrefs(run: Run, request: Request, console: Console) -> None:
    from rpcinspect.views.text.rrefs import show_rrefs

    show_rrefs(run.rrefs, console, every_fork=request.show_all)


def _rrefs_json(run: Run, request: Request) -> Iterable[Json]:
    from rpcinspect.views.contract.state import rrefs_json

    return rrefs_json(run.rrefs)


def _show_device_maps(run: Run, request: Request, console: Console) -> None:
    from rpcinspect.views.text.device_maps import show_device_maps

    show_device_maps(run.device_maps, console)


def _device_maps_json(run: Run, request: Request) -> Iterable[Json]:
    from rpcinspect.views.contract.state import device_maps_json

    return device_maps_json(run.device_maps)


def _show_closings(run: Run, request: Request, console: Console) -> None:
    from rpcinspect.views.text.closings import show_closings

    show_closings(run.closings, _start_ns(run), console)


def _closings_json(run: Run, request: Request) -> Iterable[Json]:
    from rpcinspect.views.contract.state import closings_json

    return closings_json(run.closings)


def _start_ns(run: Run) -> int:
    """What times count from: the first message; without any, the first packet."""
    session = run.session
    packets = (capture.first_time_ns for capture in session.captures if capture.first_time_ns is not None)
    return min(session.messages.time_ns or packets, default=0)


ANSWERS: dict[str, Answer] = {
    "graph": Answer("message", _graph_messages, _show_graph, _graph_json),
    "contexts": Answer("context", lambda run, _: len(run.graphs), _show_contexts, _contexts_json),
    "latency": Answer("exchange", _exchanges, _show_latency, _latency_json),
    "profile": Answer("profiled call", lambda run, _: len(run.profiles), _show_profile, _profile_json),
    "rrefs": Answer("RRef", lambda run, _: len(run.rrefs), _show_rrefs, _rrefs_json),
    "device-maps": Answer(
        "device map", lambda run, _: len(run.device_maps), _show_device_maps, _device_maps_json
    ),
    "closings": Answer("pipe", lambda run, _: run.closings.pipes, _show_closings, _closings_json),
}
"""By the name of the option."""
