"""`rpcinspect graph`: the autograd graph of a context."""

from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.guard import UsageMistake
from rpcinspect.cli.options import ContextOption, QuestionOptions

if TYPE_CHECKING:
    from rpcinspect.run.graph import ContextGraph
    from rpcinspect.run.run import RunModel
    from rpcinspect.views.questions.question import Question

MAX_NAMED = 8
"""Contexts that are named where none, or another one, was asked for."""


class GraphCommand(QuestionOptions, frozen=True, kw_only=True):
    """Draw the autograd graph of a context, with its critical path."""

    EXAMPLES: ClassVar = (
        "graph run.pcap",
        "graph run.pcap --context 0:3",
        "graph run.pcap --context 0:3 -f 'type == BACKWARD_AUTOGRAD_REQ'",
    )

    context: ContextOption = None

    def question(self) -> "Question":
        from rpcinspect.views.questions.contexts import graph_question

        return graph_question(lambda run: named_graphs(run, self.context))


def named_graphs(run: "RunModel", context: str | None) -> "tuple[ContextGraph, ...]":
    """Returns the graphs of a context, one for each job that has it; of the only context where none is named.
    Raises `UsageMistake` where there is no such context, or are several.
    """
    from rpcinspect.fields.phrases import packed, read_packed, some

    ids = list(dict.fromkeys(graph.context_id for graph in run.whole.graphs))
    wanted = None if context is None else read_packed(context)
    if context is None and len(ids) == 1:
        (wanted,) = ids
    graphs = () if wanted is None else run.graphs_of(wanted)
    if graphs:
        return graphs
    known = "no autograd context was seen"
    if ids:
        known = f"there {'are' if len(ids) > MAX_NAMED else 'is'} {some([packed(i) for i in ids], MAX_NAMED)}"
    if context is None:
        raise UsageMistake(f"choose one with --context: {known}" if ids else known)
    raise UsageMistake(f"--context {context}: there is no such context; {known}")
