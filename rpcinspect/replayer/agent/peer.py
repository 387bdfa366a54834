"""A played worker behind which torch's own agent stands, in a process of its own; to the player it is a peer.

In: messages to send, as captured, with live ids. Out: events in the loop, as of `peer.py`: what torch's agent
tells, put into messages again, so that they are matched and compared as those of the wire are. Nothing is
unpickled here.

What torch's agent does not show is filled in by what is known of it:

- the id of an autograd edge that this worker makes is the captured one, whatever torch's number is;
- gradients are answered when torch says that the pass has ended, and all of a pass have the same answer;
- a cleanup is answered when the live worker says that it has no such context any more;
- the sender of a question without an edge is that of the captured one with the same bytes;
- device maps, `retain_graph` and the mark of asynchronous functions of what comes are the captured ones.

The other side is `agent/main.py`. Longer than other modules: each report of the process may answer what any
method sent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.equality.ids import AUTOGRAD_MESSAGE
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.agent.messages import (
    ExpectedQuestions,
    OwnRRefs,
    answer_command,
    autograd_envelope,
    call_of,
    is_async_call,
    made,
    read_message,
    retained,
)
from rpcinspect.replayer.agent.passes import PassProgress, RolePasses
from rpcinspect.replayer.agent.values import MapDevice, rows_of, table_of
from rpcinspect.replayer.peers.loop import READ, Loop, RequestArrived
from rpcinspect.replayer.peers.open_requests import OpenRequests
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.workers.live_group import LiveWorker
from rpcinspect.replayer.workers.worker_protocol import ControlSocket, Object, parts_of, with_parts
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
    ScriptRemoteCall,
    ScriptRRefFetchCall,
)
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd
from rpcinspect.rpc.message import NO_TENSORS, RpcMessage
from rpcinspect.rpc.types import pack_id, unpack_id
from rpcinspect.run.exchanges import Exchange

UNKNOWN_EDGES = 1 << 40
"""Counter of the first autograd message id that is made up for a message whose id torch does not show."""
SAID_S = 30.0
"""For what the process is to say, such as the ids of an RRef."""
_TYPES = re.compile(r"torch\.(\w+)Tensor\b", re.ASCII)
"""In errors that Python raises torch has another word for `CPUFloatType`."""
LOST = "(this error originated at tensorpipe"
"""In the text of an error that is no answer: the pipe broke."""


class RoleInputs(Struct, frozen=True, kw_only=True):
    """What a played worker has to do in its session."""

    role: str
    inputs: SessionInputs
    asked: Sequence[Exchange]
    """What live workers ask it in the capture, in the order in which it is expected."""
    passes: RolePasses
    place: MapDevice
    contexts: Sequence[int]
    """The autograd contexts that something is sent in."""


class _SentByAgent(Struct):
    """What is known of a request that torch's agent was to send."""

    command: Command
    context: int | None


class AgentPeer:
    """A played worker; closing the loop ends the conversation."""

    def __init__(
        self,
        loop: Loop,
        part: RoleInputs,
        control: ControlSocket,
        live: Mapping[str, LiveWorker],
        bring: Callable[[str, int], None],
    ) -> None:
        """`bring`: takes a context that another worker made to a played one."""
        self._bring = bring
        self._brought: set[int] = set()
        self.name = part.role
        self._loop = loop
        self._part = part
        self._control = control
        self._live = live
        self._ids = part.inputs.worker_ids
        self._names = {number: name for name, number in self._ids.items()}
        self._open = OpenRequests[_SentByAgent](loop, part.role)
        self._expected = ExpectedQuestions(part.asked)
        self._async: dict[int, bool] = {}
        self._edges: set[tuple[int, int]] = set()
        """(context, live id) of what was received with an edge."""
        self._sent_edges: dict[tuple[int, int], str] = {}
        """(context, own id) → who got it."""
        self._came: Counter[tuple[int, int]] = Counter()
        self._made_up = UNKNOWN_EDGES
        self._progress = PassProgress(part.passes, self._live_edge, self._edges)
        self._released: set[int] = set()
        self._cleaning: set[int] = set()
        """Requests to forget a context, by their numbers."""
        self._questions = 0
        self._rrefs = OwnRRefs()
        self._made: list[Object] = []
        self._begun = False
        loop.watch(self, control.sock, READ)
        loop.add_timer(self._check)
        control.send({"do": "begin", "contexts": list(part.contexts)})

    def begin(self) -> None:
        """Waits until the process plays: what reaches it before that, it would unpickle."""
        self._hear_until(lambda: self._begun)

    # --- for the player -------------------------------------------------------------------------------------

    def send(
        self, to: str, message: RpcMessage, tensors: Sequence[bytes] = (), *, timeout_s: float | None = None
    ) -> int:
        """Sends a request as `Peer.send`. Raises `ReplayError` for what torch's agent can't send."""
        command, context, edge = read_message(message)
        foreign = context is not None and unpack_id(context)[0] != self._ids[self.name]
        if context is not None and foreign and context not in self._brought:
            self._brought.add(context)
            self._bring(self.name, context)
        sent = _SentByAgent(command, context)
        n = self._open.add(to, timeout_s, sent)
        try:
            self._send(n, to, sent, message, tensors, edge)
        except ReplayError:
            self._open.drop(n)
            raise
        if edge is not None and context is not None:
            self._sent_edges[context, edge] = to
        return n

    def renew(self, message_id: int) -> None:
        """Restarts the timeout of a request, as `Peer.renew`."""
        self._open.renew(message_id)

    def answer(self, request: RequestArrived, message: RpcMessage, tensors: Sequence[bytes] = ()) -> bool:
        """Answers a request as `Peer.answer`; what torch's agent answers by itself is not sent again."""
        if request.message.id not in self._async:
            return True
        command, context, edge = read_message(message)
        what: Object = {"do": "answer", "n": request.message.id, "async": self._async[request.message.id]}
        if isinstance(command, ExceptionResponse):
            self._tell({**what, "error": command.text.decode("utf-8", "replace")})
            del self._async[request.message.id]
            return True
        assert isinstance(command, PythonResp)  # the plan skips others, see `cannot`
        what |= self._linked(context, edge)
        self._tell(what, command.serialized_py_obj, message.tensor_table, tensors)
        del self._async[request.message.id]
        if edge is not None and context is not None:
            self._sent_edges[context, edge] = request.sender
        return True

    def end(self, *, reset: bool) -> bool:
        """Returns False: torch's agent stays until the session is over."""
        return False

    # --- what is sent ---------------------------------------------------------------------------------------

    def _send(
        self,
        n: int,
        to: str,
        sent: _SentByAgent,
        message: RpcMessage,
        tensors: Sequence[bytes],
        edge: int | None,
    ) -> None:
        command, context = sent.command, sent.context
        if isinstance(command, PropagateGradientsReq):
            sent.context = command.autograd_metadata.autograd_context_id
            self._send_gradient(command, message, tensors)
        elif isinstance(command, CleanupAutogradContextReq):
            sent.context = command.context_id
            self._release(command.context_id)
            self._cleaning.add(n)
        elif isinstance(command, (PythonRRefFetchCall, ScriptRRefFetchCall)):
            real = self._rrefs.real(command.rref_id.to_value())
            self._tell({"do": "fetch", "n": n, "context": context, "rref": real})
        else:
            if isinstance(command, (PythonCall, PythonRemoteCall)):
                message = self._rrefs.with_own_ids(message, tensors, self._fork)
            told, pickle = call_of(read_message(message)[0], self._rrefs.real)
            what: Object = {"do": "call", "n": n, "to": to, **self._linked(context, edge)}
            self._tell(what | told, pickle, message.tensor_table, tensors)
            if isinstance(command, (PythonRemoteCall, ScriptRemoteCall)):
                self._rrefs.made(command.ret_rref_id.to_value(), self._until_made()["rref"])

    def _fork(self, rref: Sequence[int]) -> tuple[int, int]:
        """Makes one more fork of an RRef of torch's, which is about to be sent."""
        self._tell({"do": "fork", "n": None, "rref": list(rref)})
        on, local = self._until_made()["fork"]
        return int(on), int(local)

    def _until_made(self) -> Object:
        """Returns the report of the process about the RRef that it was to make."""
        self._hear_until(lambda: bool(self._made))
        return self._made.pop(0)

    def _hear_until(self, done: Callable[[], bool]) -> None:
        """Handles reports of the process until `done` is true."""
        while not done():
            if not self._hear_next():
                raise ReplayError(f"the process that plays {self.name} has ended")
        while self._control.said_more and self._hear_next():
            pass  # nothing else would say that it is there

    def _linked(self, context: int | None, edge: int | None) -> Object:
        """The id of a message that is to be sent, and the received ones whose gradients hang at it."""
        leaves = [] if context is None or edge is None else self._progress.leaves(context, edge)
        return {"context": context, "edge": edge, "leaves": leaves}

    def _send_gradient(
        self, command: PropagateGradientsReq, message: RpcMessage, tensors: Sequence[bytes]
    ) -> None:
        context = command.autograd_metadata.autograd_context_id
        edge = command.autograd_metadata.autograd_message_id
        begun = self._progress.advance(context, edge)
        what = {
            "do": "gradient",
            "context": context,
            "edge": edge,
            "grads": list(command.grads),
            "pass": begun and {"root": begun[0].root, "edges": begun[1], "retain": begun[0].retain},
            "last": not self._progress.left[context],
        }
        self._tell(what, b"", message.tensor_table, tensors)

    def _live_edge(self, captured: int) -> int:
        found = self._part.inputs.ids.translate(AUTOGRAD_MESSAGE, captured)
        return found if isinstance(found, int) else captured

    def _release(self, context: int) -> None:
        """Marks a context as ended: torch's agent informs all workers at once."""
        if context not in self._released:
            self._released.add(context)
            self._tell({"do": "release", "context": context})

    def _tell(
        self, what: Object, pickle: bytes = b"", table: bytes = NO_TENSORS, storages: Sequence[bytes] = ()
    ) -> None:
        blob = with_parts(what, pickle, rows_of(table, self._part.place), storages)
        self._control.send(what, blob)

    # --- what comes -----------------------------------------------------------------------------------------

    def ready(self, events: int) -> None:
        """Reads what the process has sent."""
        while self._hear_next():
            if not self._control.said_more:
                return
        self.close()

    def close(self) -> None:
        """The process has ended, or the loop does."""
        self._loop.forget(self)
        self._loop.remove_timer(self._check)
        for n in list(self._open.on()):
            self._lose(n, "the played worker's process has ended")

    def _hear_next(self) -> bool:
        """Handles the next report of the process; False: the process has ended."""
        heard = self._control.receive(SAID_S)
        try:
            if heard is not None:
                self._hear(*heard)
        except (KeyError, TypeError, ValueError) as error:
            raise ReplayError(f"the played worker's process sent an unreadable line: {error!r}") from error
        return heard is not None

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
        elif said == "begun":
            self._begun = True
        elif said == "failed" and what["n"] is not None:
            self._open.not_sent(int(what["n"]), f"torch's agent: {what['error']}")
        elif said == "failed":
            raise ReplayError(f"{self.name}: {what['do']}: {what['error']}")

    def _hear_answer(self, what: Object, blob: bytes) -> None:
        n = int(what["n"])
        one = self._open.on().get(n)
        if one is None:
            return
        error = what.get("error")
        if error is not None:
            if LOST in error:
                self._lose(n, error)
            else:
                self._answered(n, made(ExceptionResponse(error.encode("utf-8", "surrogateescape"))))
            return
        pickle, storages = parts_of(what, blob)
        command = answer_command(one.what.command, what, pickle)
        for fork in self._rrefs.brought(pickle if isinstance(command, PythonResp) else b""):
            self._tell({"do": "adopt", "n": None, "fork": fork})
        envelopes = self._envelope(one.what.context, what["edge"], command, one.to, answer=True)
        self._answered(n, made(command, envelopes, table_of(what["tensors"])), storages)

    def _answered(self, n: int, message: RpcMessage, storages: Sequence[bytes] = ()) -> None:
        """Posts the answer to a request; harmless where nobody waits."""
        self._open.answered(replace(message, id=n), storages)

    def _lose(self, n: int, reason: str) -> None:
        """Posts that nothing will come for a request."""
        one = self._open.on().get(n)
        self._open.lost("" if one is None else one.to, reason, (n,))

    def _envelope(
        self, context: int | None, edge: int | None, command: Command, sender: str, *, answer: bool
    ) -> list[RpcWithAutograd]:
        """The autograd envelope of what came: torch wraps answers where an edge is made, Python calls in
        every context."""
        if context is None or (answer and edge is None):
            return []
        if edge is None:
            edge = pack_id(self._ids[sender], self._made_up)
            self._made_up += 1
        else:
            self._edges.add((context, int(edge)))
        return [autograd_envelope(context, int(edge), self._ids[sender], command, answer=answer)]

    def _hear_question(self, what: Object, blob: bytes) -> None:
        pickle, storages = parts_of(what, blob)
        edge = what["edge"]
        sender = None if edge is None else self._names.get(unpack_id(int(edge))[0])
        like, doubtful = self._expected.take(pickle, sender)
        sender = sender or (like.caller if like is not None else next(iter(self._live), ""))
        is_async = like is not None and is_async_call(like)
        number = int(what["n"])
        command = PythonCall(pickle, is_async)
        envelopes = self._envelope(what["context"], edge, command, sender, answer=False)
        if like is not None:
            for captured in like.request.rpc.envelopes:
                if isinstance(captured, RpcWithAutograd):
                    envelopes = [replace(one, device_map=captured.device_map) for one in envelopes]
        self._async[number] = is_async
        message = made(command, envelopes, table_of(what["tensors"]))
        self._open.asked(sender, replace(message, id=number), storages, doubtful=doubtful)

    def _hear_gradients(self, what: Object, blob: bytes) -> None:
        context, edge = int(what["context"]), int(what["edge"])
        _, storages = parts_of(what, blob)
        sender = self._sent_edges[context, edge]
        number = self._came[context, edge]
        self._came[context, edge] += 1
        retain = retained(self._part.inputs.calls.values(), AutogradMetadata(context, edge), number)
        command = PropagateGradientsReq(AutogradMetadata(context, edge), tuple(what["grads"]), retain)
        self._questions -= 1  # no question of torch's has such a number
        message = made(command, (), table_of(what["tensors"]))
        self._open.asked(sender, replace(message, id=self._questions), storages)

    def _hear_end(self, context: int, error: str | None) -> None:
        """A pass has ended: everything that left in it is answered."""
        own = f"Error on Node {self._ids[self.name]}: "
        error = None if error is None else _TYPES.sub(r"CPU\1Type", error.removeprefix(own))
        for n, one in list(self._open.on().items()):
            if one.what.context == context and isinstance(one.what.command, PropagateGradientsReq):
                answer: Command = PropagateGradientsResp()
                if error is not None and error.startswith(f"Error on Node {self._ids[one.to]}:"):
                    answer = ExceptionResponse(error.encode("utf-8", "surrogateescape"))
                self._answered(n, made(answer))

    def _check(self, now: float) -> None:
        """Posts what has waited too long for its answer, and asks whether contexts are gone."""
        for n in list(self._cleaning):
            one = self._open.on().get(n)
            context = None if one is None else one.what.context
            if one is None:
                self._cleaning.discard(n)
            elif context is not None and not self._live[one.to].has_context(context):
                self._cleaning.discard(n)
                self._answered(n, made(CleanupAutogradContextResp()))
        self._open.overdue(now)
