"""A worker that exists only on the wire: it has a name, an id, a listener and pipes, and runs no code.

In: messages to send, as `RpcMessage` with the storages of their tensors. Out: events in the loop: answers,
requests of live workers, lost pipes. Everything is as torch's agent does it: one pipe for each worker that
is asked something, opened at first use; answers go back over the pipe on which the request came; message
ids are one counter per peer. Several peers share one loop.

What a message says is the caller's matter, except for what would end the receiving process: the tensor
table must be readable and fit the storages that come with it. Descriptors always say cpu:0.

Mirrors torch/csrc/distributed/rpc/tensorpipe_agent.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.errors import ReplayError
from rpcinspect.files.closing import Closing
from rpcinspect.replayer.peers.handshake import LOOPBACK_TERMS, Listener, Terms, open_pipe
from rpcinspect.replayer.peers.loop import Loop, PipeLost, RequestArrived, ResponseArrived, ended_by
from rpcinspect.replayer.peers.loopback import parse_address
from rpcinspect.replayer.peers.open_requests import OpenRequests
from rpcinspect.replayer.peers.pipe_end import PeerPipe
from rpcinspect.replayer.planning.tensor_check import TensorChecker
from rpcinspect.rpc.envelope import RpcWithAutograd, peel_partial
from rpcinspect.rpc.message import RpcMessage, is_request, is_response, type_name


class Peer(Closing):
    """A played worker. Use it in a `with` statement, or close the loop."""

    def __init__(
        self,
        loop: Loop,
        name: str,
        worker_id: int,
        *,
        host: str = "127.0.0.1",
        terms: Terms = LOOPBACK_TERMS,
    ) -> None:
        """Listens at once; `host` is numeric, and within reach of the terms. Raises `ReplayError` if it is
        none of this machine.
        """
        self.loop = loop
        self.name = name
        self.worker_id = worker_id
        self.addresses: dict[str, str] = {}
        """Name of a live worker → its address, `uv://127.0.0.1:4711`."""
        self._listener = Listener(loop, host, self._inbound, self._stranger_lost, terms)
        self._terms = terms
        self._outbound: dict[str, PeerPipe] = {}
        self._pipes: dict[int, PeerPipe] = {}
        self._open_requests = OpenRequests[None](loop, name)
        self._due: dict[int, set[int]] = {}
        """Inbound pipe → ids of requests that we have not answered."""
        self._tensors = TensorChecker()
        self._reached: set[str] = set()
        """Workers whose pipes were lost, but had been taken."""
        loop.add_timer(self._open_requests.overdue)

    @property
    def address(self) -> str:
        """The address at which this peer listens, as published in the store."""
        return self._listener.address.url

    def send(
        self, to: str, message: RpcMessage, tensors: Sequence[bytes] = (), *, timeout_s: float | None = None
    ) -> int:
        """Sends a request to a live worker; the message's own id is not used. Returns the id that it got.

        Without an answer in `timeout_s` (None: no limit) an `Unanswered` is posted, once. Raises
        `ReplayError` if the worker's address is not known, or the message can't be sent to anybody.
        """
        if not is_request(message.type):
            raise ReplayError(f"{type_name(message.type)} is not a request")
        self._check_tensors(message, tensors)
        pipe = self._outbound.get(to) or self._open(to)
        # Before anything is sent: the pipe may be lost while sending, and says which ids it takes along.
        message_id = self._open_requests.add(to, timeout_s, None, pipe.number)
        waiting = len(self._open_requests.on(pipe.number))
        try:
            if waiting > self.loop.limits.unanswered:
                raise ReplayError(f"{waiting:,} requests to {to!a} have no answer")
            pipe.send(RpcMessage(message.type, message_id, message.payload, message.tensor_table), tensors)
        except ReplayError:
            self._open_requests.drop(message_id, pipe.number)
            raise
        return message_id

    def renew(self, message_id: int) -> None:
        """Gives a request as much time for its answer as it had when it was sent; harmless if it has one."""
        self._open_requests.renew(message_id)

    def answer(self, request: RequestArrived, message: RpcMessage, tensors: Sequence[bytes] = ()) -> bool:
        """Answers a request, over its pipe and with its id. Returns False if the pipe is lost: nobody waits
        any more.

        Raises `ReplayError` if the request was answered before, or the message can't be sent to anybody.
        """
        if not is_response(message.type):
            raise ReplayError(f"{type_name(message.type)} is not an answer")
        self._check_tensors(message, tensors)
        pipe = self._pipes.get(request.pipe)
        if pipe is None or pipe.lost:
            return False
        due = self._due[request.pipe]
        if request.message.id not in due:
            raise ReplayError(f"request {request.message.id} of {request.sender!a} was answered before")
        due.discard(request.message.id)
        pipe.send(
            RpcMessage(message.type, request.message.id, message.payload, message.tensor_table), tensors
        )
        return True

    def call(
        self, to: str, message: RpcMessage, tensors: Sequence[bytes] = (), *, timeout_s: float
    ) -> ResponseArrived:
        """Sends a request and waits for its answer; other events are kept. Raises `ReplayError` without an
        answer."""
        message_id = self.send(to, message, tensors, timeout_s=timeout_s)
        key = self.name, message_id
        event = self.loop.wait_until(lambda event: key in ended_by(event), timeout_s + 1.0)
        if isinstance(event, ResponseArrived):
            return event
        if isinstance(event, PipeLost):
            raise ReplayError(f"{to}: {event.reason}")
        raise ReplayError(f"{to} did not answer {type_name(message.type)} within {timeout_s:g} s")

    def reached(self, name: str) -> bool:
        """Returns whether a process listens, or has listened, at the address of a worker that was called."""
        pipe = self._outbound.get(name)
        return name in self._reached or (pipe is not None and pipe.reached)

    def forget(self, name: str) -> None:
        """The worker is gone: its pipe is closed without an event, its address no longer known."""
        self.addresses.pop(name, None)
        pipe = self._outbound.pop(name, None)
        if pipe is not None:
            pipe.close()
            self._drop(pipe)

    def close(self, *, reset: bool = False) -> None:
        """Closes listener and pipes; calling it again is fine. `reset`: the pipes by an RST."""
        self.loop.remove_timer(self._open_requests.overdue)
        self._listener.close()
        for pipe in list(self._pipes.values()):
            pipe.close(reset=reset)
        self._pipes.clear()
        self._outbound.clear()

    def end(self, *, reset: bool) -> bool:
        """Ends as the process of a worker does; returns that it has."""
        self.close(reset=reset)
        return True

    # --- pipes ---------------------------------------------------------------------------------------------

    def _open(self, to: str) -> PeerPipe:
        address = self.addresses.get(to)
        if address is None:
            raise ReplayError(f"the address is not known of {to!a}")
        pipe = self._pipe(to, inbound=False)
        self._outbound[to] = pipe
        open_pipe(pipe, self.name, parse_address(address, self._terms.reach), self._terms)
        return pipe

    def _inbound(self, name: str) -> PeerPipe:
        return self._pipe(name, inbound=True)

    def _pipe(self, other: str, *, inbound: bool) -> PeerPipe:
        arrived = self._request_arrived if inbound else self._response_arrived
        pipe = PeerPipe(self.loop, inbound=inbound, other=other, on_message=arrived, on_lost=self._lost)
        self._pipes[pipe.number] = pipe
        self._due[pipe.number] = set()
        return pipe

    def _lost(self, pipe: PeerPipe, reason: str) -> None:
        if pipe.reached and not pipe.inbound:
            self._reached.add(pipe.other)
        if self._outbound.get(pipe.other) is pipe:
            del self._outbound[pipe.other]
        unanswered = self._drop(pipe)
        self._open_requests.lost(pipe.other, reason, unanswered, pipe=pipe.number, inbound=pipe.inbound)

    def _stranger_lost(self, reason: str) -> None:
        self._open_requests.lost("", reason, pipe=0, inbound=True)

    def _drop(self, pipe: PeerPipe) -> tuple[int, ...]:
        """Forgets a pipe; the requests on it that have no answer."""
        self._pipes.pop(pipe.number, None)
        self._due.pop(pipe.number, None)
        return self._open_requests.forget(pipe.number)

    # --- messages ------------------------------------------------------------------------------------------

    def _request_arrived(self, pipe: PeerPipe, message: RpcMessage, tensors: tuple[bytes, ...]) -> None:
        due = self._due[pipe.number]
        if not is_request(message.type):
            pipe.lose(f"{type_name(message.type)} came where only requests may come")
        elif message.id in due:
            pipe.lose(f"request {message.id} came twice before it was answered")
        elif len(due) >= self.loop.limits.unanswered:
            pipe.lose(f"more than {len(due):,} requests that have no answer")
        else:
            due.add(message.id)
            self._open_requests.asked(pipe.other, message, tensors, pipe.number)

    def _response_arrived(self, pipe: PeerPipe, message: RpcMessage, tensors: tuple[bytes, ...]) -> None:
        if not is_response(message.type):
            pipe.lose(f"{type_name(message.type)} came where only answers may come")
        elif not self._open_requests.answered(message, tensors, pipe.number):
            pipe.lose(f"an answer to request {message.id}, which awaits none")

    def _check_tensors(self, message: RpcMessage, tensors: Sequence[bytes]) -> None:
        try:
            self._tensors.check(message.tensor_table, tensors, tracked=_is_tracked(message))
        except ReplayError as error:
            raise ReplayError(f"{type_name(message.type)}: {error}") from error


def _is_tracked(message: RpcMessage) -> bool:
    """Whether a message's tensors become part of an autograd graph as they arrive."""
    envelopes = peel_partial(message.type, message.payload).envelopes
    return any(isinstance(envelope, RpcWithAutograd) for envelope in envelopes)
