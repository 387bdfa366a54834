"""Gives live workers the objects of RRefs that the capture lacks, before anything else is sent.

In: a session's inputs, and peers that are members of its group. Out: owners that have a value under the
captured ids. What the user provides is made by a call of `workers/objects.py`, and taken by a remote call of
it. A stand-in is made by an ordinary remote call: of `typing.cast`, which returns what it gets,
with the captured pickle of the value put into the call as it is; a TorchScript value by `aten::alias`.
Nothing is loaded here. Older forks are announced to the owner as their users once did.

An id that a live worker would give out again by itself is replaced by one at the other end of its counter.
"""

from __future__ import annotations

import pickletools
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import astuple, replace

from rpcinspect.equality.ids import FORK, RREF
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.control_calls import (
    cast_pickle,
    object_call,
    object_pickle,
    push,
    push_tensor,
    read_told,
)
from rpcinspect.replayer.peers.loop import (
    Handle,
    Loop,
    NotSent,
    PeerEvent,
    PipeLost,
    RequestArrived,
    ResponseArrived,
    ended_by,
)
from rpcinspect.replayer.planning.model import ObjectProvision, StandIn, ValueLoad
from rpcinspect.replayer.planning.provisions import tensor_of
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
TELL_S = 1.0
GivenObject: TypeAlias = StandIn | ObjectProvision

OWN_IDS = 1 << (LOCAL_ID_BITS - 1)
"""Counters from here on are given out by nobody else: those of workers begin at 0."""

ALIAS = "aten::alias(Tensor(a) self) -> Tensor(a)"
"""Returns the tensor, with its form and whether it requires grad."""


def give(inputs: SessionInputs, loop: Loop, peers: Mapping[str, PlayedWorker], handle: Handle) -> None:
    """Sends all of a session's stand-ins; returns when their owners have them. Raises `ReplayError` if one
    does not take it."""
    planned = inputs.planned
    role = planned.cast.roles[0]
    live = {inputs.worker_ids[name] for name in planned.cast.live}
    given: tuple[GivenObject, ...] = (*planned.provided, *planned.stand_ins)
    for number, one in enumerate(given):
        _choose_ids(inputs, one, live)
        own = GloballyUniqueId(inputs.worker_ids[role], OWN_IDS + number)
        rref = _live(inputs, RREF, one.rref)
        storages: Sequence[bytes] = ()
        if isinstance(one, StandIn):
            answer = inputs.calls[one.request].response
            assert answer is not None
            made, storages = made_by(answer, rref, own), inputs.storages(answer)
        else:
            made = _provided(inputs, one, rref, own, loop, peers[role], handle)
        told = [to_message(RRefForkRequest(rref, _live(inputs, FORK, fork))) for fork in one.forks]
        what = f"take the object for RRef {one.rref[0]}:{one.rref[1]}"
        # one after the other: nothing else may come while an owner makes an object
        for request, its in [(made, storages), *((each, ()) for each in told)]:
            why = _refused(
                ask(inputs, loop, peers[role], one.owner, request, handle, what, its, timeout_s=TIMEOUT_S)
            )
            if why is not None:
                raise ReplayError(f"{one.owner} does not {what}: {why}")


def _provided(
    inputs: SessionInputs,
    one: ObjectProvision,
    rref: GloballyUniqueId,
    fork: GloballyUniqueId,
    loop: Loop,
    peer: PlayedWorker,
    handle: Handle,
) -> RpcMessage:
    """Lets an owner make an object; returns the remote call that takes it."""
    name = f"{one.rref[0]}:{one.rref[1]}"
    call = object_call("make", push(name), push(one.source), push(one.type))
    answer = ask(inputs, loop, peer, one.owner, call, handle, f"make RRef {name}")
    error, taker = (answer, None) if isinstance(answer, str) else read_told(answer)
    if error is not None:
        raise ReplayError(f"--provide {name}={one.source} failed in {one.owner}: {error}")
    if taker is not None:
        typed = ScriptRemoteCall(
            args=(name,), schema=None, qualified_name=taker, ret_rref_id=rref, ret_fork_id=fork
        )
        return to_message(typed)
    made = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=object_pickle(name),
        ret_rref_id=rref,
        ret_fork_id=fork,
        is_async_execution=False,
    )
    return to_message(made)


def ask(
    inputs: SessionInputs,
    loop: Loop,
    peer: PlayedWorker,
    owner: str,
    request: RpcMessage,
    handle: Handle,
    what: str,
    storages: Sequence[bytes] = (),
    *,
    timeout_s: float | None = None,
    begun: bool = False,
) -> RpcMessage | str:
    """Makes a request of our own, at which its owner does `what`, and waits for its answer, which it returns,
    or why none came; `timeout_s`: None for that of the user's objects. Other events are left in the loop once
    the job's messages have `begun`; before that nobody would answer a live worker's request, and it raises
    `ReplayError`."""
    timeout_s = inputs.making_s if timeout_s is None else timeout_s
    key = peer.name, peer.send(owner, request, storages, timeout_s=timeout_s)
    began = time.monotonic()

    def matters(event: PeerEvent) -> bool:
        if key in ended_by(event) or handle(event):
            return True
        if isinstance(event, RequestArrived) and not begun:
            raise ReplayError(f"{event.sender} makes a request before anything was sent")
        return False

    while True:
        event = loop.wait_until(matters, TELL_S)
        if event is None:
            inputs.waiting(f"{owner} to {what}", time.monotonic() - began)
        elif key in ended_by(event):
            if isinstance(event, ResponseArrived):
                return event.message
            if isinstance(event, (NotSent, PipeLost)):
                return event.reason
            return f"no answer came within {timeout_s:g} s"


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


def load(
    inputs: SessionInputs,
    one: ValueLoad,
    loop: Loop,
    peer: PlayedWorker,
    handle: Handle,
) -> None:
    """Puts values into the object of an RRef. Raises `ReplayError` where that fails, or no answer comes."""
    rref, owner = _live(inputs, RREF, one.rref), inputs.ids_in_group[one.owner]
    fork = push([owner, *astuple(rref), *astuple(rref), owner, one.type])
    storages: Sequence[bytes] = ()
    if one.file is not None:
        call = object_call("load_file", fork, push(one.file))
    else:
        answer = inputs.calls[one.request or 0].response
        assert answer is not None
        index = tensor_of(answer)
        assert index is not None
        storages, table = inputs.storages(answer), answer.rpc.message.tensor_table
        call = replace(object_call("load_value", fork, push_tensor(index)), tensor_table=table)
    what = f"take values for RRef {one.rref[0]}:{one.rref[1]}"
    name = inputs.live_name(one.owner)
    answered = ask(inputs, loop, peer, name, call, handle, what, storages, begun=True)
    error = answered if isinstance(answered, str) else read_told(answered)[0]
    if error is not None:
        raise ReplayError(f"{one.owner}: {one.text}: {error}")


def _choose_ids(inputs: SessionInputs, stand_in: GivenObject, live: Collection[int]) -> None:
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


def _refused(answer: RpcMessage | str) -> str | None:
    """Says why an owner has not taken a value; None: it has."""
    if isinstance(answer, str):
        return answer
    return None if answer.type in TAKEN else f"it answers {type_name(answer.type)}"


TAKEN = (MessageType.REMOTE_RET, MessageType.RREF_ACK)
