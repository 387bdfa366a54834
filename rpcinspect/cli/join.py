"""`rpcinspect join`: captured requests to the workers of a group that runs already."""

from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec.structs import replace

from rpcinspect.cli.ci_reports import reported
from rpcinspect.cli.options import argument, option
from rpcinspect.cli.replay_options import PlayOptions, YesOption, read_store

if TYPE_CHECKING:
    from rpcinspect.replayer.options import ReplayOptions
    from rpcinspect.replayer.planning.plan import PlanOptions
    from rpcinspect.replayer.planning.sources import Sources

StoreArgument = Annotated[str, argument("tcp://HOST:PORT", "The store of the group: its init_method.")]
NO_YES = (
    "refused: the group would RUN what the capture sends, with its workers' rights, and be changed by it; "
    "to allow that, add --yes"
)


class JoinCommand(PlayOptions, frozen=True, kw_only=True):
    """Replay against the workers of a running group.

    The group must be dynamic (init_rpc without a world size). It runs what the capture sends, with its
    workers' rights. rpcinspect joins it for that, and leaves it again.
    """

    EXAMPLES: ClassVar = (
        "join tcp://10.0.0.7:29500 run.pcap --path ./src --plan",
        "join tcp://10.0.0.7:29500 run.pcap --path ./src --yes",
    )

    store: StoreArgument
    renames: Annotated[
        list[str], option("--rename CAPTURED=MEMBER", "Map a captured name to a member's; repeatable.")
    ] = []
    yes: YesOption = False

    def run(self) -> int:
        """Replays; returns the exit code."""
        from rpcinspect.cli.replaying import replayed

        with reported(self, "replay", self.files):
            return replayed(self, None if self.yes or self.plan else NO_YES)

    def plan_options(self) -> "PlanOptions":
        return replace(super().plan_options(), joins=True)

    def replay_options(self, files: "Sources") -> "ReplayOptions":
        from rpcinspect.cli.arguments import renames
        from rpcinspect.replayer.playing.attach import JoinOptions

        renamed = renames(self.renames, "CAPTURED=MEMBER")
        join = JoinOptions(store=read_store(self.store), renames=renamed)
        return replace(super().replay_options(files), join=join)
