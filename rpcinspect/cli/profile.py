"""`rpcinspect profile`: what callers' profilers say of operators at the callees."""

from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.options import AllOption, QuestionOptions

if TYPE_CHECKING:
    from rpcinspect.cli.answer import Answer


class ProfileCommand(QuestionOptions, frozen=True, kw_only=True):
    """Show operators at callees, as the callers' profilers saw them."""

    EXAMPLES: ClassVar = ("profile run.pcap", "profile run.pcap --all")

    show_all: AllOption = False

    def how(self) -> "Answer":
        from rpcinspect.cli.answer import Answer
        from rpcinspect.views.jsonl.questions import profile_json
        from rpcinspect.views.text.profile import show_profile

        return Answer(
            noun="profiled call",
            count=lambda run: len(run.profiles),
            show=lambda run, console: show_profile(run.profiles, console, every_call=self.show_all),
            json=lambda run: profile_json(run.profiles),
            kinds=("profile", "profile_row"),
        )
