"""Gives live workers the stand-ins of a session, before anything else is sent.

In: a session's material, and peers that are members of its group. Out: owners that have a value under the
captured ids. A stand-in is made by an ordinary remote call: of `typing.cast`, which returns what it gets,
with the captured pickle of the value put into the call as it is; a TorchScript value by `aten::alias`.
Nothing is loaded here. Older forks are announced to the owner as their users once did.

An id that a live worker would give out again by itself is replaced by one at the other end of its counter.
"""

from __future__ import annotations

import pickletools
import time
from collections.abc import Collection, Mapping

from rpcinspect.equality.ids import FORK, RREF
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.control_calls import cast_pickle
from rpcinspect.replayer.peers.loop import Loop, PipeLost, RequestArrived, ResponseArrived, Unanswered
from rpcinspect.replayer.planning.model import StandIn
from rpcinspect.replayer.playing.inputs import Material, Members, Played
from rpcinspect.rpc.command import (
    Command,
    PythonRemoteCall,
    PythonRRefFetchRet,
    RRefForkRequest,
    ScriptRemoteCall,
    ScriptRRefFetchRet,
)
from rpcinspect.rpc.command_codec import to_message
from rpcinspect.rpc.message import MessageType, RpcMessage, type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import LOCAL_ID_BITS, GloballyUniqueId

TIMEOUT_S = 30.0
OWN_IDS = 1 << (LOCAL_ID_BITS - 1)
"""Counters from here on are given out by nobody else: those of workers begin at 0."""

ALIAS = "aten::alias(Tensor(a) self) -> Tensor(a)"
"""Returns the tensor, with its form and whether it requires grad."""


def give(material: Material, loop: Loop, peers: Mapping[str, Played], members: Members) -> None:
    """All of a session's stand-ins; returns when their owners have them. Raises `ReplayError` if one does
    not take it."""
    planned = material.planned
    if not planned.stand_ins:
        return
    role = planned.cast.roles[0]
    live = {material.worker_ids[name] for name in planned.cast.live}
    waiting: dict[int, StandIn] = {}
    for number, stand_in in enumerate(planned.stand_ins):
        _choose_ids(material, stand_in, live)
        own = GloballyUniqueId(material.worker_ids[role], OWN_IDS + number)
        answer = material.calls[stand_in.request].response
        assert answer is not None
        rref = _live(material, RREF, stand_in.rref)
        made = made_by(answer, rref, own)
        sent = [peers[role].send(stand_in.owner, made, material.storages(answer), timeout_s=TIMEOUT_S)]
        for fork in stand_in.forks:
            told = to_message(RRefForkRequest(rref, _live(material, FORK, fork)))
            sent.append(peers[role].send(stand_in.owner, told, timeout_s=TIMEOUT_S))
        waiting |= dict.fromkeys(sent, stand_in)
    _await(role, loop, members, waiting)


def made_by(answer: RpcRecord, rref: GloballyUniqueId, fork: GloballyUniqueId) -> RpcMessage:
    """The remote call whose result is the value of a captured answer to a fetch."""
    command = answer.rpc.command
    made: Command
    if isinstance(command, PythonRRefFetchRet):
        made = PythonRemoteCall(
            tensors=command.tensors,
            serialized_py_obj=cast_pickle(opcodes_of_value(command.serialized_py_obj)),
            ret_rref_id=rref,
            ret_fork_id=fork,
            is_async_execution=False,
        )
    else:
        assert isinstance(command, ScriptRRefFetchRet)
        made = ScriptRemoteCall(
            args=command.values,
            schema=ALIAS,
            qualified_name="torch.ops.aten.alias",
            ret_rref_id=rref,
            ret_fork_id=fork,
        )
    return to_message(made, answer.rpc.message.tensor_table)


def opcodes_of_value(data: bytes) -> bytes:
    """What of a pickle pushes its value: without PROTO, FRAME and STOP. It does so in another pickle too, if
    nothing was memoised there before."""
    places = [(opcode.name, place) for opcode, _, place in pickletools.genops(data) if place is not None]
    ends = [place for _, place in places[1:]]
    kept = [
        data[place:end]
        for (name, place), end in zip(places, ends, strict=False)
        if name not in ("PROTO", "FRAME")
    ]
    return b"".join(kept)


def _choose_ids(material: Material, stand_in: StandIn, live: Collection[int]) -> None:
    """Ids that live workers made: they count from 0 here, and would give them out again."""
    for kind, captured in ((RREF, stand_in.rref), *((FORK, fork) for fork in stand_in.forks)):
        created_on, local_id = captured
        if created_on in live:
            other = GloballyUniqueId(created_on, OWN_IDS + local_id)
            material.ids.same(kind, GloballyUniqueId(*captured), other)


def _live(material: Material, kind: str, captured: tuple[int, int]) -> GloballyUniqueId:
    own = GloballyUniqueId(*captured)
    partner = material.ids.translate(kind, own)
    return partner if isinstance(partner, GloballyUniqueId) else own


def _await(role: str, loop: Loop, members: Members, waiting: dict[int, StandIn]) -> None:
    """Until every owner has acknowledged."""
    deadline = time.monotonic() + TIMEOUT_S
    while waiting:
        if time.monotonic() > deadline:
            _not_taken(next(iter(waiting.values())), "nothing came")
        for event in loop.wait(0.05):
            if members.handle(event):
                continue
            if isinstance(event, PipeLost):
                for number in event.unanswered:
                    if event.peer == role and number in waiting:
                        _not_taken(waiting[number], event.reason)
            elif isinstance(event, Unanswered):
                if event.peer == role and event.message_id in waiting:
                    _not_taken(waiting[event.message_id], "no answer came")
            elif isinstance(event, ResponseArrived) and event.peer == role:
                stand_in = waiting.pop(event.message.id, None)
                if stand_in is not None and event.message.type not in TAKEN:
                    _not_taken(stand_in, f"it answers {type_name(event.message.type)}")
            elif isinstance(event, RequestArrived):
                raise ReplayError(f"{event.sender} asks for something before anything was sent")


def _not_taken(stand_in: StandIn, why: str) -> None:
    name = f"{stand_in.rref[0]}:{stand_in.rref[1]}"
    raise ReplayError(f"{stand_in.owner} does not take the stand-in for RRef {name}: {why}")


TAKEN = (MessageType.REMOTE_RET, MessageType.RREF_ACK)
