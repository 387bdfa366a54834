"""`rpcinspect rrefs`: the remote references of a run."""

from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.options import AllOption, QuestionOptions

if TYPE_CHECKING:
    from rpcinspect.cli.answer import Answer


class RrefsCommand(QuestionOptions, frozen=True, kw_only=True):
    """List remote references: who made, held and deleted each."""

    EXAMPLES: ClassVar = ("rrefs run.pcap", "rrefs run.pcap --all -f 'dst == ps'")

    show_all: AllOption = False

    def how(self) -> "Answer":
        from rpcinspect.cli.answer import Answer
        from rpcinspect.views.jsonl.questions import rrefs_json
        from rpcinspect.views.text.rrefs import show_rrefs

        return Answer(
            noun="RRef",
            count=lambda run: len(run.rrefs),
            show=lambda run, console: show_rrefs(run.rrefs, run.calls, console, every_fork=self.show_all),
            json=lambda run: rrefs_json(run.rrefs),
            kinds=("rref",),
        )
