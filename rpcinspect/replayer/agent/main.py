"""The process in which torch's own agent plays a captured worker; it is forked like a live worker.

Told over the control socket: calls, answers, gradients and cleanups of the played worker, as captured bytes
and rows of tensors (`agent/tensors.py`). Tells: what came back, what live workers ask, which gradients
arrive. torch makes the envelopes, the ids and the order on the wire. The other side is `agent/peer.py`.

- **Nothing is unpickled here** once the play has begun: `deserialize`, `serialize` and `_run_function` of
  torch.distributed.rpc.internal, which torch's C++ looks up when an agent starts, are replaced by functions
  that hand bytes through. A captured pickle is sent as it is, an answer is passed on as it came, and what a
  live worker asks in Python is answered with captured bytes.
May assume that the gate has passed everything that is to be sent. Runs as part of `worker_main.py`.
Mirrors torch/distributed/rpc/api.py and torch/csrc/distributed/autograd/engine/dist_engine.cpp.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
from torch._C import _distributed_autograd as autograd_c

from rpcinspect.replayer.agent.nodes import (
    ContextThreads,
    JobThread,
    PassWatch,
    RecordedFunction,
    tokens,
)
from rpcinspect.replayer.agent.tensors import NO_TIMEOUT, RemoteRefs, build, invoke, tell, tell_value
from rpcinspect.replayer.workers.bounds import LATER_THREADS
from rpcinspect.replayer.workers.worker_protocol import HOST, Object, parts_of, with_parts

FOREVER_S = 1e6
WORKER_THREADS = 128
"""Each request of a live worker holds one until its answer is due, each context of another worker one."""
CONTEXT_THREADS = 4
"""Its own, and those of its passes and fetches at the same time."""
HIGHEST = 1 << 40
"""Sequence number of the first leaf of a pass."""


class Opaque:
    """A pickle that came or is to be sent, and its tensors; nobody loads it."""

    def __init__(self, pickle: bytes, tensors: list[torch.Tensor]) -> None:
        self.pickle = pickle
        self.tensors = tensors


class PlayedAgent:
    """Plays a captured worker with torch's own agent, by the commands that come over the control socket."""

    def __init__(self, control: Any, worker_id: int) -> None:
        self.control = control
        self.begun = False
        self.contexts = ContextThreads(worker_id)
        self.plain = JobThread()
        self.outs: dict[tuple[int, int], list[torch.Tensor]] = {}
        """(context, autograd message id) of what was received → its tensors that require grad."""
        self.gates: dict[tuple[int, int], queue.SimpleQueue[list[torch.Tensor]]] = defaultdict(
            queue.SimpleQueue
        )
        self.numbers = count(1)
        self.questions: dict[int, queue.SimpleQueue[Any]] = {}
        self.passes = PassWatch(self.say)
        self.rrefs = RemoteRefs()
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()

    # --- the control socket ---------------------------------------------------------------------------------

    def say(self, what: Object, pickle: bytes = b"", tensors: Sequence[torch.Tensor] = ()) -> None:
        """Queues a report for our process, with a pickle and tensors behind it; any thread may call it."""
        rows, storages = tell(tensors)
        blob = with_parts(what, pickle, rows, storages)
        self._out.put((what, blob))

    def write(self) -> None:
        """Sends the queued reports, in a thread of its own: no thread of torch waits for their reader."""
        while True:
            self.control.send(*self._out.get(), timeout_s=FOREVER_S)

    def serve(self) -> None:
        """Carries out commands until the socket closes."""
        threading.Thread(target=self.write, daemon=True).start()
        while (message := self.control.receive(FOREVER_S)) is not None:
            command, blob = message
            try:
                DO[command["do"]](self, command, blob)
            except Exception as error:
                traceback.print_exc()
                self.say({"said": "failed", "do": command["do"], "n": command.get("n"), "error": text(error)})

    # --- calls ----------------------------------------------------------------------------------------------

    def begin(self, command: Object, blob: bytes) -> None:
        self.contexts.wanted = frozenset(command["contexts"])
        self.begun = True
        self.say({"said": "begun"})

    def call(self, command: Object, blob: bytes) -> None:
        """Sends a request; reports the answer when it comes."""
        pickle, tensors = unpack(command, blob)
        context = command["context"]
        thread = self.plain if context is None else self.contexts.thread(context)
        linked = self.outgoing(context, command, tensors)

        sent = thread.do(lambda: invoke(command, pickle, linked, self.rrefs.handles))
        if command["remote"]:
            self.say({"said": "made", **self.rrefs.keep(sent)})
            sent = sent._get_future()
        sent.add_done_callback(lambda done: self.answered(command, done.value))

    def answered(self, command: Object, get: Callable[[], Any]) -> None:
        """Reports an answer, in a thread of the agent: `get` returns it, or raises what came in its place."""
        what: Object = {"said": "answer", "n": command["n"]}
        try:
            found = get()
        except Exception as error:
            self.say({**what, "error": str(error)})
            return
        try:
            context = command["context"]
            if command.get("remote"):
                self.say({**what, "edge": None})
            elif isinstance(found, Opaque):
                edge = self.received(context, found.tensors)
                self.say({**what, "edge": edge}, found.pickle, found.tensors)
            else:
                tensors: list[torch.Tensor] = []
                told = tell_value(found, tensors)
                self.say({**what, "edge": self.received(context, tensors), "value": told}, b"", tensors)
        except Exception as error:
            traceback.print_exc()
            self.say({"said": "failed", "do": "call", "n": command["n"], "error": text(error)})

    def fork(self, command: Object, blob: bytes) -> None:
        """A handle is about to be handed on."""
        self.say({"said": "made", **self.rrefs.fork(command["rref"])})

    def adopt(self, command: Object, blob: bytes) -> None:
        """An answer has brought a handle."""
        self.rrefs.adopt(command["fork"])

    def fetch(self, command: Object, blob: bytes) -> None:
        """Asks for the value of a remote reference; nobody waits for that here."""
        context, (on, local) = command["context"], command["rref"]
        thread = JobThread() if context is None else self.contexts.thread(context)
        get = partial(self.rrefs.handles[on, local].to_here, NO_TIMEOUT)
        thread.begin(lambda: self.answered(command, get))
        if context is None:
            thread.end()

    def received(self, context: int | None, tensors: Sequence[torch.Tensor]) -> int | None:
        """The autograd message id of what came, if torch has hung it into the graph of a context."""
        outs = [tensor for tensor in tensors if tensor.requires_grad and tensor.grad_fn is not None]
        if context is None or not outs:
            return None
        functions = autograd_c._retrieve_context(context)._recv_functions()
        edge = next((number for number, function in functions.items() if function is outs[0].grad_fn), None)
        if edge is not None:
            self.outs[context, edge] = outs
        return edge

    def outgoing(
        self, context: int | None, command: Object, tensors: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Returns the tensors of a message behind a node that reports their gradients."""
        flags = [row["requires_grad"] for row in command["tensors"] if row["part_of"] is None]
        wanting = [tensor for tensor, flag in zip(tensors, flags, strict=True) if flag]
        if not wanting:
            return tensors
        edge, leaves = command["edge"], self.leaves(context, command["leaves"])
        if context is not None:
            self.passes.sent(context, edge)
        inputs = leaves or [torch.zeros((), requires_grad=True)]

        def tap(grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
            self.arrived(context, edge, grads)
            return tokens(len(inputs))

        made = iter(RecordedFunction.apply(wanting, tap, *inputs))
        return [next(made) if flag else tensor for tensor, flag in zip(tensors, flags, strict=True)]

    # --- questions of live workers --------------------------------------------------------------------------

    def asked(self, question: Opaque) -> Any:
        """Returns the result for `_run_function`, once our process has sent it, in a thread of the agent."""
        try:
            context: int | None = autograd_c._current_context()._context_id()
        except RuntimeError:
            context = None
        if question.pickle == HOST and context is not None:
            self.contexts.host(context)
            return Opaque(b"\x80\x02N.", [])
        edge = self.received(context, question.tensors)
        number = next(self.numbers)
        waiter = self.questions[number] = queue.SimpleQueue()
        what = {"said": "asked", "n": number, "context": context, "edge": edge}
        self.say(what, question.pickle, question.tensors)
        command, blob = waiter.get()
        if command.get("error") is not None:
            raise RuntimeError(command["error"])
        pickle, tensors = unpack(command, blob)
        given = Opaque(pickle, self.outgoing(context, command, tensors))
        if not command["async"]:
            return given
        future: torch.futures.Future[Opaque] = torch.futures.Future()
        future.set_result(given)
        return future

    def answer(self, command: Object, blob: bytes) -> None:
        self.questions.pop(command["n"]).put((command, blob))

    # --- gradients ------------------------------------------------------------------------------------------

    def arrived(self, context: int | None, edge: int, grads: Sequence[torch.Tensor | None]) -> None:
        """Reports gradients for something that this worker has sent; runs in a thread of the engine."""
        unique: list[torch.Tensor] = []
        places = []
        for grad in grads:
            assert grad is not None  # torch fills in zeros before it sends them
            place = next((i for i, one in enumerate(unique) if one is grad), len(unique))
            if place == len(unique):
                unique.append(grad)
            places.append(place)
        if context is not None:
            self.passes.came(context, edge)
        self.say({"said": "gradients", "context": context, "edge": edge, "grads": places}, b"", unique)

    def gradient(self, command: Object, blob: bytes) -> None:
        """Sends a gradient that is due through the gate of its leaf. The first one begins the pass."""
        _, tensors = unpack(command, blob)
        context, edge, begins = command["context"], command["edge"], command["pass"]
        grads = [tensors[place] for place in command["grads"]]
        if begins is not None and begins["root"]:
            self.backward(context, begins)
        self.gates[context, edge].put(grads)
        self.passes.left(context, last=command["last"])

    def backward(self, context: int, begins: Object) -> None:
        leaves = self.leaves(context, begins["edges"])

        def begin(_: Any) -> list[torch.Tensor]:
            self.passes.own(context)
            return tokens(len(leaves))

        root = RecordedFunction.apply(tokens(1), begin, *leaves)

        def run() -> None:
            error = None
            try:
                dist_autograd.backward(context, list(root), retain_graph=begins["retain"])
            except Exception as raised:
                error = str(raised)
            self.passes.ended(context)
            self.say({"said": "pass", "context": context, "error": error})

        threading.Thread(target=run, daemon=True).start()

    def leaves(self, context: int | None, edges: Sequence[int]) -> list[torch.Tensor]:
        """A leaf behind each of these received messages; earlier ones leave first."""
        made: list[torch.Tensor] = []
        for place, edge in reversed(list(enumerate(edges))):
            assert context is not None
            outs, gate = self.outs[context, edge], self.gates[context, edge]
            (token,) = RecordedFunction.apply(tokens(1), lambda _, gate=gate: gate.get(), *outs)
            outs[0].grad_fn._set_sequence_nr(HIGHEST - 2 * place)
            token.grad_fn._set_sequence_nr(HIGHEST - 2 * place - 1)
            made.insert(0, token)
        return made

    def release(self, command: Object, blob: bytes) -> None:
        context = command["context"]
        self.contexts.release(context)
        for key in [key for key in self.outs if key[0] == context]:
            del self.outs[key]
        self.passes.forget(context)
        self.say({"said": "released", "context": context})


DO: dict[str, Callable[[PlayedAgent, Object, bytes], None]] = {
    "begin": PlayedAgent.begin,
    "call": PlayedAgent.call,
    "fork": PlayedAgent.fork,
    "fetch": PlayedAgent.fetch,
    "adopt": PlayedAgent.adopt,
    "answer": PlayedAgent.answer,
    "gradient": PlayedAgent.gradient,
    "release": PlayedAgent.release,
}


def unpack(command: Object, blob: bytes) -> tuple[bytes, list[torch.Tensor]]:
    """The pickle and the tensors of a command."""
    pickle, storages = parts_of(command, blob)
    return pickle, build(command["tensors"], storages)


def text(error: BaseException) -> str:
    """Returns type and text of an error."""
    return f"{type(error).__name__}: {error}"


def hand_through(agent: PlayedAgent) -> None:
    """Replaces what torch's C++ calls to pickle, to unpickle and to run; must come before the agent
    starts."""
    internal = torch.distributed.rpc.internal
    unpickle = internal.deserialize

    def deserialize(binary: bytes, tensors: list[torch.Tensor]) -> Any:
        return Opaque(binary, tensors) if agent.begun else unpickle(binary, tensors)

    internal.deserialize = deserialize
    ours: dict[str, Callable[[Opaque], Any]] = {
        "serialize": lambda opaque: (opaque.pickle, opaque.tensors),
        "_run_function": agent.asked,
        "_handle_exception": lambda opaque: None,
    }
    for name, take in ours.items():
        setattr(internal, name, partial(_taken, take, getattr(internal, name)))


def _taken(take: Callable[[Opaque], Any], otherwise: Callable[[Any], Any], found: Any) -> Any:
    return take(found) if isinstance(found, Opaque) else otherwise(found)


def play(control: Any, command: Object, join_group: Callable[[Any, Object, int], None]) -> None:
    """Joins the group under the name and the id of a captured worker, and plays it."""
    torch.set_num_interop_threads(WORKER_THREADS)  # gradients that arrive wait in them
    agent = PlayedAgent(control, command["id"])
    hand_through(agent)
    threads = LATER_THREADS + WORKER_THREADS + CONTEXT_THREADS * command["contexts"]
    join_group(control, {**command, "worker_threads": WORKER_THREADS}, threads)
    agent.serve()
