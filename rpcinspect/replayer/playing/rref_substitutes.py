"""Gives live workers the stand-ins of a session, before anything else is sent.

In: a session's inputs, and peers that are members of its group. Out: owners that have a value under the
captured ids. A stand-in is made by an ordinary remote call: of `typing.cast`, which returns what it gets,
with the captured pickle of the value put into the call as it is; a TorchScript value by `aten::alias`.
Nothing is loaded here. Older forks are announced to the owner as their users once did.

An id that a live worker would give out again by itself is replaced by one at the other end of its counter.
"""

from __future__ import annotations

import pickletools
from collections.abc import Collection, Mapping

from rpcinspect.equality.ids import FORK, RREF
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.control_calls import cast_pickle
from rpcinspect.replayer.peers.loop import (
    Handle,
    Loop,
    NotSent,
    PipeLost,
    RequestArrived,
    ResponseArrived,
    Unanswered,
    ended_by,
)
from rpcinspect.replayer.planning.model import StandIn
from rpcinspect.replayer.playing.inputs import PlayedWorker, SessionInputs
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


def give(inputs: SessionInputs, loop: Loop, peers: Mapping[str, PlayedWorker], handle: Handle) -> None:
    """Sends all of a session's stand-ins; returns when their owners have them. Raises `ReplayError` if one
    does not take it."""
    planned = inputs.planned
    if not planned.stand_ins:
        return
    role = planned.cast.roles[0]
    live = {inputs.worker_ids[name] for name in planned.cast.live}
    waiting: dict[tuple[str, int], StandIn] = {}
    for number, stand_in in enumerate(planned.stand_ins):
        _choose_ids(inputs, stand_in, live)
        own = GloballyUniqueId(inputs.worker_ids[role], OWN_IDS + number)
        answer = inputs.calls[stand_in.request].response
        assert answer is not None
        rref = _live(inputs, RREF, stand_in.rref)
        made = made_by(answer, rref, own)
        sent = [peers[role].send(stand_in.owner, made, inputs.storages(answer), timeout_s=TIMEOUT_S)]
        for fork in stand_in.forks:
            told = to_message(RRefForkRequest(rref, _live(inputs, FORK, fork)))
            sent.append(peers[role].send(stand_in.owner, told, timeout_s=TIMEOUT_S))
        waiting |= {(peers[role].name, n): stand_in for n in sent}
    _await(loop, handle, waiting)


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
    """The opcodes of a pickle that push its value, without PROTO, FRAME and STOP; they do so in another
    pickle too, if nothing was memoised there before."""
    places = [(opcode.name, place) for opcode, _, place in pickletools.genops(data) if place is not None]
    ends = [place for _, place in places[1:]]
    kept = [
        data[place:end]
        for (name, place), end in zip(places, ends, strict=False)
        if name not in ("PROTO", "FRAME")
    ]
    return b"".join(kept)


def _choose_ids(inputs: SessionInputs, stand_in: StandIn, live: Collection[int]) -> None:
    """Ids that live workers made: they count from 0 here, and would give them out again."""
    for kind, captured in ((RREF, stand_in.rref), *((FORK, fork) for fork in stand_in.forks)):
        created_on, local_id = captured
        if created_on in live:
            other = GloballyUniqueId(created_on, OWN_IDS + local_id)
            inputs.ids.same(kind, GloballyUniqueId(*captured), other)


def _live(inputs: SessionInputs, kind: str, captured: tuple[int, int]) -> GloballyUniqueId:
    own = GloballyUniqueId(*captured)
    partner = inputs.ids.translate(kind, own)
    return partner if isinstance(partner, GloballyUniqueId) else own


def _await(loop: Loop, handle: Handle, waiting: dict[tuple[str, int], StandIn]) -> None:
    """Waits until every owner has acknowledged; each request ends in its time. Raises `ReplayError`."""
    while waiting:
        for event in loop.wait(TIMEOUT_S):
            if handle(event):
                continue
            if isinstance(event, RequestArrived):
                raise ReplayError(f"{event.sender} makes a request before anything was sent")
            for key in ended_by(event):
                stand_in, why = waiting.pop(key, None), _refused(event)
                if stand_in is not None and why is not None:
                    name = f"{stand_in.rref[0]}:{stand_in.rref[1]}"
                    raise ReplayError(f"{stand_in.owner} does not take the stand-in for RRef {name}: {why}")


def _refused(event: ResponseArrived | Unanswered | NotSent | PipeLost) -> str | None:
    """Says why an owner has not taken a value; None: it has."""
    if isinstance(event, ResponseArrived):
        kind = event.message.type
        return None if kind in TAKEN else f"it answers {type_name(kind)}"
    return "no answer came" if isinstance(event, Unanswered) else event.reason


TAKEN = (MessageType.REMOTE_RET, MessageType.RREF_ACK)
