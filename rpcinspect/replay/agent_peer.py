"""A played worker behind which torch's own agent stands, in a process of its own; to the player it is a peer.

In: messages to send, as captured, with live ids. Out: events in the loop, as of `peer.py`: what torch's agent
tells, put into messages again, so that they are matched and compared as those of the wire are. Nothing is
unpickled here.

What torch's agent does not show is filled in by what is known of it:

- the id of an autograd edge that this worker makes is the captured one, whatever torch's number is;
- gradients are answered when torch says that the pass has ended, and all of a pass have the same answer;
- a clean-up is answered when the live worker says that it has no such context any more;
- the sender of a question without an edge is that of the captured one with the same bytes;
- device maps, `retain_graph` and the mark of asynchronous functions of what comes are the captured ones.

The other side is `agent_main.py`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rpcinspect.causes.calls import Call
from rpcinspect.equality.ids import AUTOGRAD_MESSAGE, IdMap
from rpcinspect.errors import ReplayError
from rpcinspect.replay.agent_ids import OwnRRefs
from rpcinspect.replay.agent_messages import autograd_envelope, made, read_message, split_blob
from rpcinspect.replay.agent_passes import Passes, Progress
from rpcinspect.replay.agent_values import Place, read_value, rows_of, table_of, told_value
from rpcinspect.replay.control_calls import NO_TENSORS
from rpcinspect.replay.events import PipeLost, RequestArrived, ResponseArrived, Unanswered
from rpcinspect.replay.live_group import LiveWorker
from rpcinspect.replay.loop import READ, Loop
from rpcinspect.replay.worker_protocol import ControlSocket, Object
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    Command,
    ExceptionResponse,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RemoteRet,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    ScriptRRefFetchCall,
    ScriptRRefFetchRet,
)
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd
from rpcinspect.rpc.message import Message, type_name
from rpcinspect.rpc.types import pack_id, unpack_id

UNKNOWN_EDGES = 1 << 40
"""Counter of the first autograd message id that is made up for a message whose id torch does not show."""
MADE_S = 30.0
"""For the ids of an RRef."""
_TYPES = re.compile(r"torch\.(\w+)Tensor\b", re.ASCII)
"""In errors that Python raises torch has another word for `CPUFloatType`."""
LOST = "(this error originated at tensorpipe"
"""In the text of an error that is no answer: the pipe broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a played worker has to do in its session."""

    role: str
    ids: Mapping[str, int]
    """Of all workers."""
    calls: Mapping[int, Call]
    asked: Sequence[Call]
    """Python calls of live workers that are expected, in order."""
    passes: Passes
    place: Place
    contexts: Sequence[int]
    """The autograd contexts that something is sent in."""


@dataclass(slots=True)
class _Open:
    """A request without an answer."""

    to: str
    command: Command
    context: int | None
    deadline: float
    seconds: float
    like: Call | None = None


class AgentPeer:
    """One played worker; closing the loop ends the conversation."""

    def __init__(
        self,
        loop: Loop,
        part: Part,
        control: ControlSocket,
        live: Mapping[str, LiveWorker],
        ids: IdMap,
        bring: Callable[[str, int], None],
    ) -> None:
        """`ids`: captured → live, as the player learns them. `bring`: takes a context that another worker
        made to a played one."""
        self._bring = bring
        self._brought: set[int] = set()
        self.name = part.role
        self._loop = loop
        self._part = part
        self._control = control
        self._live = live
        self._ids = ids
        self._names = {number: name for name, number in part.ids.items()}
        self._open: dict[int, _Open] = {}
        self._given_up: set[int] = set()
        self._next_id = 0
        self._asked = list(part.asked)
        self._async: dict[int, bool] = {}
        self._edges: set[tuple[int, int]] = set()
        """(context, live id) of what was received with an edge."""
        self._sent_edges: dict[tuple[int, int], str] = {}
        """(context, own id) → who got it."""
        self._came: Counter[tuple[int, int]] = Counter()
        self._made_up = UNKNOWN_EDGES
        self._progress = Progress(part.passes, self._live_edge, self._edges)
        self._released: set[int] = set()
        self._cleaning: dict[int, _Open] = {}
        self._questions = 0
        self._rrefs = OwnRRefs()
        self._made: list[Object] = []
        loop.watch(self, control.sock, READ)
        loop.add_timer(self._check)
        control.send({"do": "begin", "contexts": list(part.contexts)})

    # --- for the player -------------------------------------------------------------------------------------

    def send(
        self, to: str, message: Message, tensors: Sequence[bytes] = (), *, timeout_s: float | None = None
    ) -> int:
        """As of `Peer`. Raises `ReplayError` for what torch's agent can't be made to send."""
        command, context, edge = read_message(message)
        n, self._next_id = self._next_id, self._next_id + 1
        seconds = timeout_s or 0.0
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        one = _Open(to, command, context, deadline, seconds)
        foreign = context is not None and unpack_id(context)[0] != self._part.ids[self.name]
        if context is not None and foreign and context not in self._brought:
            self._brought.add(context)
            self._bring(self.name, context)
        self._open[n] = one
        try:
            self._send(n, one, message, tensors, edge)
        except ReplayError:
            self._open.pop(n, None)
            raise
        if edge is not None and context is not None:
            self._sent_edges[context, edge] = to
        return n

    def renew(self, message_id: int) -> None:
        """As of `Peer`."""
        one = self._open.get(message_id)
        if one is not None:
            one.deadline = time.monotonic() + one.seconds

    def answer(self, request: RequestArrived, message: Message, tensors: Sequence[bytes] = ()) -> bool:
        """As of `Peer`. What torch's agent answers by itself is not sent again."""
        if request.message.id not in self._async:
            return True
        command, context, edge = read_message(message)
        what: Object = {"do": "answer", "n": request.message.id, "async": self._async[request.message.id]}
        if isinstance(command, ExceptionResponse):
            self._tell({**what, "error": command.text.decode("utf-8", "replace")})
            del self._async[request.message.id]
            return True
        if not isinstance(command, PythonResp):
            raise ReplayError(
                f"torch's agent can't be made to answer with {type_name(message_type_of(command))}"
            )
        what |= self._linked(context, edge)
        self._tell(what, command.serialized_py_obj, message.tensor_table, tensors)
        del self._async[request.message.id]
        if edge is not None and context is not None:
            self._sent_edges[context, edge] = request.sender
        return True

    # --- what is sent ---------------------------------------------------------------------------------------

    def _send(self, n: int, one: _Open, message: Message, tensors: Sequence[bytes], edge: int | None) -> None:
        to, command, context = one.to, one.command, one.context
        if isinstance(command, PropagateGradientsReq):
            one.context = command.autograd_metadata.autograd_context_id
            self._send_gradient(command, message, tensors)
        elif isinstance(command, CleanupAutogradContextReq):
            one.context = command.context_id
            self._release(n, one)
        elif isinstance(command, (PythonRRefFetchCall, ScriptRRefFetchCall)):
            real = self._rrefs.real(command.rref_id)
            self._tell({"do": "fetch", "n": n, "context": context, "rref": real})
        elif isinstance(command, (PythonCall, ScriptCall, PythonRemoteCall, ScriptRemoteCall)):
            if isinstance(command, (PythonCall, PythonRemoteCall)):
                message = self._rrefs.with_own_ids(message, tensors, self._fork)
            self._call(n, to, read_message(message)[0], message, tensors, context, edge)
            if isinstance(command, (PythonRemoteCall, ScriptRemoteCall)):
                self._rrefs.made(command.ret_rref_id, self._until_made()["rref"])
        else:
            raise ReplayError(f"torch's agent can't be made to send {type_name(message_type_of(command))}")

    def _call(
        self,
        n: int,
        to: str,
        command: Command,
        message: Message,
        tensors: Sequence[bytes],
        context: int | None,
        edge: int | None,
    ) -> None:
        remote = isinstance(command, (PythonRemoteCall, ScriptRemoteCall))
        what: Object = {"do": "call", "n": n, "to": to, "remote": remote, **self._linked(context, edge)}
        if isinstance(command, (PythonCall, PythonRemoteCall)):
            what |= {"kind": "python", "async": command.is_async_execution}
            self._tell(what, command.serialized_py_obj, message.tensor_table, tensors)
            return
        assert isinstance(command, (ScriptCall, ScriptRemoteCall))
        builtin = command.schema is not None
        what |= {
            "kind": "builtin" if builtin else "script",
            "function": command.schema if builtin else command.qualified_name,
            "args": [told_value(one, self._rrefs.real_pair) for one in command.args],
            "async": command.is_async_execution,
        }
        self._tell(what, b"", message.tensor_table, tensors)

    def _fork(self, rref: Sequence[int]) -> tuple[int, int]:
        """One more fork of an RRef of torch's, which is about to be sent."""
        self._tell({"do": "fork", "n": None, "rref": list(rref)})
        on, local = self._until_made()["fork"]
        return int(on), int(local)

    def _until_made(self) -> Object:
        """What the process says of an RRef that it was to make; whatever else it says is heard."""
        while not self._made:
            heard = self._control.receive(MADE_S)
            if heard is None:
                raise ReplayError(f"the process that plays {self.name} has ended")
            self._hear(*heard)
        while self._control.said_more:  # nothing else would say that it is there
            heard = self._control.receive(MADE_S)
            if heard is not None:
                self._hear(*heard)
        return self._made.pop(0)

    def _linked(self, context: int | None, edge: int | None) -> Object:
        """The id of a message that is to be sent, and the received ones whose gradients hang at it."""
        leaves = [] if context is None or edge is None else self._progress.leaves(context, edge)
        return {"context": context, "edge": edge, "leaves": leaves}

    def _send_gradient(
        self, command: PropagateGradientsReq, message: Message, tensors: Sequence[bytes]
    ) -> None:
        context = command.autograd_metadata.autograd_context_id
        edge = command.autograd_metadata.autograd_message_id
        begun = self._progress.advance(context, edge)
        what = {
            "do": "gradient",
            "context": context,
            "edge": edge,
            "grads": list(command.grads),
            "pass": None
            if begun is None
            else {"root": begun[0].root, "edges": begun[1], "retain": begun[0].retain},
            "last": self._progress.last(context),
        }
        self._tell(what, b"", message.tensor_table, tensors)

    def _live_edge(self, captured: int) -> int:
        found = self._ids.translate(AUTOGRAD_MESSAGE, captured)
        return found if isinstance(found, int) else captured

    def _release(self, n: int, one: _Open) -> None:
        """torch's agent tells everybody of the end of a context at once."""
        assert one.context is not None
        if one.context not in self._released:
            self._released.add(one.context)
            self._tell({"do": "release", "context": one.context})
        self._cleaning[n] = one

    def _tell(
        self, what: Object, pickle: bytes = b"", table: bytes = NO_TENSORS, storages: Sequence[bytes] = ()
    ) -> None:
        what |= {
            "pickle": len(pickle),
            "tensors": rows_of(table, self._part.place),
            "storages": [len(data) for data in storages],
        }
        self._control.send(what, b"".join([pickle, *storages]))

    # --- what comes -----------------------------------------------------------------------------------------

    def ready(self, events: int) -> None:
        """The process says something."""
        while True:
            heard = self._control.receive(30.0)
            if heard is None:
                self.close()
                return
            try:
                self._hear(*heard)
            except (KeyError, TypeError, ValueError) as error:
                raise ReplayError(f"the played worker's process says nonsense: {error!r}") from error
            if not self._control.said_more:
                return

    def tick(self, now: float) -> None:
        """Nothing that depends on time is in a connection."""

    def close(self) -> None:
        """The process has ended, or the loop does."""
        self._loop.forget(self)
        self._loop.remove_timer(self._check)
        lost, self._open = self._open, {}
        for n, one in lost.items():
            self._post_lost(n, one.to, "the played worker's process has ended")

    def _hear(self, what: Object, blob: bytes) -> None:
        said = what["said"]
        if said == "answer":
            self._hear_answer(what, blob)
        elif said == "asked":
            self._hear_question(what, blob)
        elif said == "gradients":
            self._hear_gradients(what, blob)
        elif said == "pass":
            self._hear_end(int(what["context"]), what["error"])
        elif said == "made":
            self._made.append(what)
        elif said == "failed" and what["n"] is not None:
            self._post_lost(int(what["n"]), "", f"torch's agent could not send it: {what['error']}")
        elif said == "failed":
            raise ReplayError(f"{self.name}: {what['do']}: {what['error']}")

    def _hear_answer(self, what: Object, blob: bytes) -> None:
        n = int(what["n"])
        one = self._open.get(n)
        if one is None:
            return
        error = what.get("error")
        if error is not None:
            if LOST in error:
                self._post_lost(n, one.to, error)
            else:
                self._post_answer(n, made(ExceptionResponse(error.encode("utf-8", "surrogateescape"))))
            return
        pickle, storages = split_blob(what, blob)
        asked = one.command
        command: Command
        if isinstance(asked, (PythonRemoteCall, ScriptRemoteCall)):
            command = RemoteRet(asked.ret_rref_id, asked.ret_fork_id)
        elif isinstance(asked, PythonRRefFetchCall):
            tops = [row["part_of"] for row in what["tensors"]].count(None)
            command = PythonRRefFetchRet(tuple(range(tops)), pickle)
        elif isinstance(asked, ScriptRRefFetchCall):
            command = ScriptRRefFetchRet((read_value(what["value"]),))
        elif "value" in what:
            command = ScriptResp(read_value(what["value"]))
        else:
            command = PythonResp(pickle)
        for fork in self._rrefs.brought(pickle if isinstance(command, PythonResp) else b""):
            self._tell({"do": "adopt", "n": None, "fork": fork})
        envelopes = self._envelope(one.context, what["edge"], command, one.to, answer=True)
        self._post_answer(n, made(command, envelopes, table_of(what["tensors"])), storages)

    def _envelope(
        self, context: int | None, edge: int | None, command: Command, sender: str, *, answer: bool
    ) -> list[RpcWithAutograd]:
        """The autograd envelope of what came: torch wraps answers where an edge is made, Python calls in
        every context."""
        if context is None or (answer and edge is None):
            return []
        if edge is None:
            edge = pack_id(self._part.ids[sender], self._made_up)
            self._made_up += 1
        else:
            self._edges.add((context, int(edge)))
        return [autograd_envelope(context, int(edge), self._part.ids[sender], command, answer=answer)]

    def _hear_question(self, what: Object, blob: bytes) -> None:
        pickle, storages = split_blob(what, blob)
        edge = what["edge"]
        sender = None if edge is None else self._names.get(unpack_id(int(edge))[0])
        like = self._like(pickle, sender)
        sender = sender or (like.caller if like is not None else next(iter(self._live), ""))
        is_async = like is not None and _is_async(like)
        number = int(what["n"])
        command = PythonCall(pickle, is_async)
        envelopes = self._envelope(what["context"], edge, command, sender, answer=False)
        if like is not None:
            for captured in like.request.rpc.envelopes:
                if isinstance(captured, RpcWithAutograd):
                    envelopes = [replace(one, device_map=captured.device_map) for one in envelopes]
        self._async[number] = is_async
        self._post_request(sender, number, made(command, envelopes, table_of(what["tensors"])), storages)

    def _like(self, pickle: bytes, sender: str | None) -> Call | None:
        """The captured question that this one looks like; it is taken off the list."""
        same = [call for call in self._asked if sender is None or call.caller == sender]
        exact = [call for call in same if _pickle(call) == pickle]
        for call in (exact or same)[:1]:
            self._asked.remove(call)
            return call
        return None

    def _hear_gradients(self, what: Object, blob: bytes) -> None:
        context, edge = int(what["context"]), int(what["edge"])
        _, storages = split_blob(what, blob)
        sender = self._sent_edges.get((context, edge))
        if sender is None:
            raise ReplayError(f"{self.name}: a gradient for what was not sent")
        number = self._came[context, edge]
        self._came[context, edge] += 1
        retains = [
            call.request.rpc.command.retain_graph
            for call in self._part.calls.values()
            if isinstance(call.request.rpc.command, PropagateGradientsReq)
            and call.request.rpc.command.autograd_metadata == AutogradMetadata(context, edge)
        ]
        retain = retains[min(number, len(retains) - 1)] if retains else False
        command = PropagateGradientsReq(AutogradMetadata(context, edge), tuple(what["grads"]), retain)
        self._questions -= 1  # no question of torch's has such a number
        self._post_request(sender, self._questions, made(command, (), table_of(what["tensors"])), storages)

    def _hear_end(self, context: int, error: str | None) -> None:
        """A pass has ended: everything that left in it is answered."""
        own = f"Error on Node {self._part.ids[self.name]}: "
        error = None if error is None else _TYPES.sub(r"CPU\1Type", error.removeprefix(own))
        for n, one in list(self._open.items()):
            if one.context == context and isinstance(one.command, PropagateGradientsReq):
                if error is None or f"Error on Node {self._part.ids[one.to]}:" not in error:
                    self._post_answer(n, made(PropagateGradientsResp()))
                else:
                    self._post_answer(n, made(ExceptionResponse(error.encode("utf-8", "surrogateescape"))))

    # --- events ---------------------------------------------------------------------------------------------

    def _post_answer(self, n: int, message: Message, storages: Sequence[bytes] = ()) -> None:
        one = self._open.pop(n, None)
        if one is not None:
            self._loop.post(
                ResponseArrived(
                    peer=self.name,
                    to=one.to,
                    pipe=-1,
                    message=replace(message, id=n),
                    tensors=tuple(storages),
                    time_ns=time.time_ns(),
                )
            )

    def _post_request(self, sender: str, number: int, message: Message, storages: Sequence[bytes]) -> None:
        self._loop.post(
            RequestArrived(
                peer=self.name,
                sender=sender,
                pipe=-1,
                message=replace(message, id=number),
                tensors=tuple(storages),
                time_ns=time.time_ns(),
            )
        )

    def _post_lost(self, n: int, other: str, reason: str) -> None:
        one = self._open.pop(n, None)
        self._loop.post(
            PipeLost(
                peer=self.name,
                other=other or (one.to if one is not None else ""),
                pipe=-1,
                inbound=False,
                reason=reason,
                unanswered=(n,),
            )
        )

    def _check(self, now: float) -> None:
        """Posts what has waited too long for its answer, and asks whether contexts are gone."""
        for n, one in list(self._cleaning.items()):
            if n not in self._open:
                del self._cleaning[n]
            elif one.context is not None and not self._live[one.to].has_context(one.context):
                del self._cleaning[n]
                self._post_answer(n, made(CleanupAutogradContextResp()))
        for n, one in list(self._open.items()):
            if one.deadline < now:
                del self._open[n]
                self._loop.post(Unanswered(peer=self.name, to=one.to, message_id=n, timeout_s=one.seconds))


def _pickle(call: Call) -> bytes:
    command = call.request.rpc.command
    return command.serialized_py_obj if isinstance(command, PythonCall) else b""


def _is_async(call: Call) -> bool:
    command = call.request.rpc.command
    return isinstance(command, PythonCall) and command.is_async_execution
