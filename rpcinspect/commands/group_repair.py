"""`rpcinspect replay --leave`: takes workers that died out of a running group, and says what was done."""

from __future__ import annotations

from rpcinspect import exit_codes
from rpcinspect.commands.arguments import names
from rpcinspect.commands.interrupt import ends_as_exits
from rpcinspect.commands.output import say, say_block
from rpcinspect.commands.replay_request import Request
from rpcinspect.errors import ReplayError
from rpcinspect.replay.peers.running_group import StoreAddress, remove_dead


def leave(request: Request) -> int:
    """Repairs the group; returns the exit code."""
    store = StoreAddress.parse(request.connect or "")
    assert store is not None  # `mistake` has seen to it
    try:
        with ends_as_exits():
            done = remove_dead(store, names(request.leave))
    except ReplayError as error:
        say_block(f"nothing was changed: {error}")
        return exit_codes.DIFFERENT
    if done.token is not None:
        say(f"the group's token, which it had kept, is given back: {done.token}")
    for name in done.removed:
        say(f"{name} is no member any more")
    for name in done.untold:
        say(f"{name} did not answer and was not told: if it has ended, --leave {name} removes it too")
    return exit_codes.OK
