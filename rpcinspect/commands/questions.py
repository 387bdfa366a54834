"""`rpcinspect decode` where it is asked about the whole run: `--graph`, `--contexts`, `--latency`, ….

In: what the command line asked for. Out: an answer on standard output or in a file, and the exit code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from rich.console import Console

from rpcinspect import exit_codes
from rpcinspect.commands.decode_request import Request
from rpcinspect.commands.output import open_console, open_output, say
from rpcinspect.commands.whole_run import read_run
from rpcinspect.pipeline import Decoding
from rpcinspect.trace.answers import Trace
from rpcinspect.trace.graph import ContextGraph, find_graphs
from rpcinspect.views.empty import empty_line
from rpcinspect.views.phrases import packed, read_packed

Json = dict[str, Any]


class Answer(Protocol):
    """One way to write what is asked for."""

    def __call__(self, run: Trace, request: Request, stack: ExitStack) -> int | None:
        """Writes; returns an exit code only where there is nothing to write."""


def answer(request: Request, decoding: Decoding, stack: ExitStack) -> int | None:
    """Reads everything and answers; the exit code only where there is nothing to tell of."""
    (question,) = request.questions
    run, _ = read_run(decoding)
    reason = empty_line(run.session)
    if reason is not None:
        say(reason)
    return ANSWERS[question](run, request, stack)


def _graph(run: Trace, request: Request, stack: ExitStack) -> int | None:
    from rpcinspect.views.graph_dot import dot_lines
    from rpcinspect.views.graph_mermaid import mermaid_lines
    from rpcinspect.views.graph_table import show_graph
    from rpcinspect.views.table import write_line
    from rpcinspect.views.trace_json import graph_json

    assert request.graph is not None
    wanted = read_packed(request.graph)
    graphs = () if wanted is None else find_graphs(run.graphs, wanted)
    if not graphs:
        say(f"--graph {request.graph}: there is no such context; {_known(run.graphs)}")
        return exit_codes.USAGE
    if request.json:
        for graph in graphs:
            _write_json(graph_json(graph, run.critical_path(graph)), request, stack)
        return None
    console = stack.enter_context(open_console(request.output))
    if request.format in ("dot", "mermaid"):
        for line in (dot_lines if request.format == "dot" else mermaid_lines)(graphs):
            console.file.write(f"{line}\n")
        return None
    for number, graph in enumerate(graphs):
        if number:
            write_line(console, "")
        show_graph(graph, run.critical_path(graph), console, several_jobs=len(graphs) > 1)
    return None


def _known(graphs: Sequence[ContextGraph]) -> str:
    if not graphs:
        return "no autograd context was seen"
    names = list(dict.fromkeys(packed(graph.context_id) for graph in graphs))
    shown = ", ".join(names[:8])
    return f"there are {shown} and {len(names) - 8:,} more" if len(names) > 8 else f"there is {shown}"


def _contexts(run: Trace, request: Request, stack: ExitStack) -> int | None:
    from rpcinspect.views.contexts_table import show_contexts
    from rpcinspect.views.trace_json import contexts_json

    if request.json:
        _write_json(contexts_json(run.graphs), request, stack)
    else:
        start = min(run.session.messages.time_ns, default=0)
        show_contexts(run.graphs, start, _console(request, stack))
    return None


def _latency(run: Trace, request: Request, stack: ExitStack) -> int | None:
    from rpcinspect.views.latency_table import show_latency
    from rpcinspect.views.trace_json import latency_json

    if request.json:
        _write_json(latency_json(run.latency), request, stack)
    else:
        show_latency(run.latency, _console(request, stack), show_all=request.show_all)
    return None


def _profile(run: Trace, request: Request, stack: ExitStack) -> int | None:
    from rpcinspect.views.profile_table import show_profile
    from rpcinspect.views.trace_json import profile_json

    if request.json:
        _write_json(profile_json(run.profiles), request, stack)
    else:
        show_profile(run.profiles, _console(request, stack), every_call=request.show_all)
    return None


def _rrefs(run: Trace, request: Request, stack: ExitStack) -> int | None:
    from rpcinspect.views.rrefs_table import show_rrefs
    from rpcinspect.views.state_json import rrefs_json

    if request.json:
        _write_json(rrefs_json(run.ledger), request, stack)
    else:
        show_rrefs(run.ledger, _console(request, stack), every_fork=request.show_all)
    return None


def _device_maps(run: Trace, request: Request, stack: ExitStack) -> int | None:
    from rpcinspect.views.device_maps_table import show_device_maps
    from rpcinspect.views.state_json import device_maps_json

    if request.json:
        _write_json(device_maps_json(run.device_maps), request, stack)
    else:
        show_device_maps(run.device_maps, _console(request, stack))
    return None


def _closings(run: Trace, request: Request, stack: ExitStack) -> int | None:
    from rpcinspect.views.closings_table import show_closings
    from rpcinspect.views.state_json import closings_json

    if request.json:
        _write_json(closings_json(run.closings), request, stack)
    else:
        start = min(run.session.messages.time_ns, default=0)
        show_closings(run.closings, start, _console(request, stack))
    return None


def _console(request: Request, stack: ExitStack) -> Console:
    return stack.enter_context(open_console(request.output))


def _write_json(objects: Iterable[Json], request: Request, stack: ExitStack) -> None:
    from rpcinspect.commands.objects import write_answer

    write_answer(objects, request, stack.enter_context(open_output(request.output)))


ANSWERS: dict[str, Answer] = {
    "graph": _graph,
    "contexts": _contexts,
    "latency": _latency,
    "profile": _profile,
    "rrefs": _rrefs,
    "device-maps": _device_maps,
    "closings": _closings,
}
"""By the name of the option."""
