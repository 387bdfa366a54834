"""What a session has made in live workers and not taken back: autograd contexts, forks of remote references.

In: the captured messages that were sent and the live ones that came, in order. Out: the messages after which
nothing of it is left. A group that goes on running needs them: an owner waits for its users when it shuts
down, and a context holds tensors. A captured program may have cleaned up itself, or not, or only after the
capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

from rpcinspect.equality.ids import CONTEXT, FORK, RREF, IdMap
from rpcinspect.replay.peers.control_calls import NO_TENSORS
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    Command,
    PythonRemoteCall,
    RRefForkRequest,
    RRefUserDelete,
    ScriptRemoteCall,
)
from rpcinspect.rpc.command_codec import message_type_of, to_payload
from rpcinspect.rpc.message import Message
from rpcinspect.rpc.questions import context_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import GloballyUniqueId, unpack_id

Release: TypeAlias = tuple[str, str, Message]
"""Who sends it, to whom, what."""


class Leftovers:
    """Of one session. Names are captured ones, ids those of the live group."""

    def __init__(self, ids: IdMap, live_ids: Mapping[str, int]) -> None:
        self._ids = ids
        self._live_ids = live_ids
        self._contexts: dict[tuple[str, str, int], None] = {}
        """(role, live worker, context)"""
        self._forks: dict[tuple[str, GloballyUniqueId], tuple[str, GloballyUniqueId]] = {}
        """(role, fork) → (owner, RRef)"""

    def sent(self, role: str, to: str, record: RpcRecord) -> None:
        """A captured request has gone to a live worker; its ids are known."""
        command, context = record.rpc.command, context_of(record)
        live = None if context is None else cast("int | None", self._ids.translate(CONTEXT, context))
        if live is not None and isinstance(command, CleanupAutogradContextReq):
            self._contexts.pop((role, to, live), None)
        elif live is not None and unpack_id(live)[0] == self._live_ids.get(role):
            self._contexts[role, to, live] = None
        if isinstance(command, (PythonRemoteCall, ScriptRemoteCall)):
            self._note(role, to, command.ret_rref_id, command.ret_fork_id)
        elif isinstance(command, RRefForkRequest):
            self._note(role, to, command.rref_id, command.fork_id)
        elif isinstance(command, RRefUserDelete):
            fork = self._ids.translate(FORK, command.fork_id)
            self._forks.pop((role, cast("GloballyUniqueId", fork)), None)

    def came(self, role: str, sender: str, record: RpcRecord) -> None:
        """A live worker has sent this; of its own remote references in there the role is a user now."""
        owner = self._live_ids.get(sender)
        for fork in record.facts.forks:
            if fork.owner_id == owner:
                self._forks[role, GloballyUniqueId(*fork.fork_id)] = sender, GloballyUniqueId(*fork.rref_id)

    def releases(self) -> Iterator[Release]:
        """What is to be sent; nothing is left after it."""
        for role, fork in list(self._forks):
            owner, rref = self._forks.pop((role, fork))
            yield role, owner, _message(RRefUserDelete(rref, fork))
        for role, to, context in list(self._contexts):
            yield role, to, _message(CleanupAutogradContextReq(context))
        self._contexts.clear()

    def _note(self, role: str, owner: str, rref: GloballyUniqueId, fork: GloballyUniqueId) -> None:
        live_rref, live_fork = self._ids.translate(RREF, rref), self._ids.translate(FORK, fork)
        if isinstance(live_rref, GloballyUniqueId) and isinstance(live_fork, GloballyUniqueId):
            self._forks[role, live_fork] = owner, live_rref


def _message(command: Command) -> Message:
    return Message(message_type_of(command), 0, to_payload(command), NO_TENSORS)
