"""The views of a run: the questions of the commands, asked of the whole run or of what a filter picked.

In: a run. Out: lines, and what a line opens to. To add one: a line in `VIEWS`. What answers a question is
loaded when it is asked: the first screen need not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from rpcinspect.browse.parts import PartLines

if TYPE_CHECKING:
    from rpcinspect.filter.matches import Shown
    from rpcinspect.run.run import RunModel
    from rpcinspect.views.text.columns import Part


class BrowseView(Struct, frozen=True):
    """One of the views, by the key that shows it."""

    name: str
    short: str
    """The name where there is little room."""
    about: str
    parts: Callable[[RunModel, Shown | None], Iterator[Part]] | None = None
    """The answer; None of a view that lists rows."""
    exchanges: bool = False
    """It needs all calls as objects."""
    opens: Callable[[RunModel, int], Iterator[Part]] | None = None
    """What a row of its table opens to."""

    @property
    def whole(self) -> bool:
        """Returns whether it needs the whole run: it is not there while the capture is read."""
        return self.name not in ("calls", "messages")


def _question(name: str) -> Callable[[RunModel, Shown | None], Iterator[Part]]:
    """Returns what asks a question of a command."""

    def ask(run: RunModel, shown: Shown | None) -> Iterator[Part]:
        from rpcinspect.views.questions.all import QUESTIONS
        from rpcinspect.views.questions.question import answer_parts

        return answer_parts(QUESTIONS[name], run, shown, True)

    return ask


def _graph(run: RunModel, at: int) -> Iterator[Part]:
    """The graph of a context, with its critical path."""
    from rpcinspect.views.questions.contexts import graph_question

    graph = run.graphs[at]
    return iter(graph_question(lambda part: [part.shown(graph)]).show(run, True))


def _workers(run: RunModel, shown: Shown | None) -> Iterator[Part]:
    from rpcinspect.views.questions.session import workers_table

    yield workers_table(run, sorted(run.picked) if run.is_part else range(len(run)))
    yield "", ""
    yield from _question("disconnects")(run, shown)


def _summary(run: RunModel, shown: Shown | None) -> Iterator[Part]:
    """The sums, captures and problems, as they stand below the table of messages."""
    from rpcinspect.views.text.summary import summary

    return iter(summary(run.session, 0, shown))


VIEWS: tuple[BrowseView, ...] = (
    BrowseView("calls", "calls", "requests with their answers"),
    BrowseView("messages", "msgs", "every message"),
    BrowseView(
        "contexts",
        "ctxs",
        "distributed autograd contexts; enter shows the graph",
        _question("contexts"),
        exchanges=True,
        opens=_graph,
    ),
    BrowseView("latency", "lat", "where the time of calls went", _question("latency"), exchanges=True),
    BrowseView("rrefs", "rrefs", "remote references: who made, used and deleted them", _question("rrefs")),
    BrowseView("workers", "work", "who took part, who left first", _workers, exchanges=True),
    BrowseView(
        "findings", "find", "errors, warnings and hints; enter shows the message", _question("findings")
    ),
    BrowseView("timeline", "time", "messages between columns of workers"),
    BrowseView(
        "devices", "devs", "which devices tensors came from and went to", _question("devices"), exchanges=True
    ),
    BrowseView("summary", "sum", "sums, captures and problems", _summary),
)
BY_NAME = {view.name: view for view in VIEWS}


def answer_lines(
    view: BrowseView, run: RunModel, shown: Shown | None = None, opened: int | None = None
) -> PartLines:
    """Works a view out, or what a row of it opens to; `shown`: what a filter has left of the run."""
    if opened is not None and view.opens is not None:
        return PartLines(view.opens(run, opened), len(run.messages))
    assert view.parts is not None
    return PartLines(view.parts(run, shown), len(run.messages))
