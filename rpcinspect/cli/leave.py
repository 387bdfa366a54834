"""`rpcinspect leave`: takes workers that died out of a running group."""

from typing import Annotated, ClassVar

from rpcinspect import exit_codes
from rpcinspect.cli.join import StoreArgument
from rpcinspect.cli.options import CommandClass, argument
from rpcinspect.cli.replay_options import YesOption, read_store

NO_YES = "refused: this removes the workers' entries from the group's store; to allow that, add --yes"


class LeaveCommand(CommandClass, frozen=True, kw_only=True):
    """Remove dead workers from a running group."""

    EXAMPLES: ClassVar = ("leave tcp://10.0.0.7:29500 trainer1 --yes",)
    EXITS: ClassVar = {
        0: "they are no longer members",
        1: "the group could not be repaired; nothing was changed",
        2: "wrong options",
        4: "refused without --yes",
    }

    store: StoreArgument
    workers: Annotated[list[str], argument("NAME...", "Workers that have ended.")]
    yes: YesOption = False

    def run(self) -> int:
        """Takes the workers out of the group, and prints what was done; returns the exit code."""
        from rpcinspect.cli.arguments import names
        from rpcinspect.cli.collector import imports_are_over
        from rpcinspect.cli.interrupt import ends_as_exits
        from rpcinspect.cli.output import say, say_block
        from rpcinspect.errors import ReplayError
        from rpcinspect.replayer.peers.running_group import remove_dead

        store = read_store(self.store)
        if not self.yes:
            say(NO_YES)
            return exit_codes.REFUSED
        imports_are_over()
        try:
            with ends_as_exits():
                done = remove_dead(store, names(self.workers))
        except ReplayError as error:
            say_block(f"nothing was changed: {error}")
            return exit_codes.DIFFERENT
        if done.token is not None:
            say(f"the group's token, which it still held, was given back: {done.token}")
        for name in done.removed:
            say(f"{name} is no longer a member")
        for name in done.untold:
            again = f"rpcinspect leave {store} {name} --yes"
            say(f"{name} did not answer, so it was not told; if it is dead, {again} removes it too")
        return exit_codes.OK
