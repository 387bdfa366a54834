"""`rpcinspect contexts`: the autograd contexts of a run."""

from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.options import QuestionOptions

if TYPE_CHECKING:
    from rpcinspect.cli.answer import Answer


class ContextsCommand(QuestionOptions, frozen=True, kw_only=True):
    """List the autograd contexts and what came of their gradients."""

    EXAMPLES: ClassVar = ("contexts run.pcap", "contexts run.pcap -f 'src == trainer0' --format jsonl")

    def how(self) -> "Answer":
        from rpcinspect.cli.answer import Answer, start_ns
        from rpcinspect.views.jsonl.questions import contexts_json
        from rpcinspect.views.text.contexts import show_contexts

        return Answer(
            noun="context",
            count=lambda run: len(run.graphs),
            show=lambda run, console: show_contexts(run.graphs, start_ns(run), console),
            json=lambda run: contexts_json(run.graphs),
            kinds=("context",),
        )
