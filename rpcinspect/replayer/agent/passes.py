"""What torch's own agent can do of a plan: which gradients of a played worker belong to one backward pass,
what sets each of them off, and which requests it can't be made to send, or answers without showing it.

In: the captured calls of a job, and which take place in a session. Out: the passes of a worker in each
autograd context, in order, and for what the worker sends there the received messages whose gradients leave
once its own gradient has come. torch's agent needs both: it runs passes, and sends no gradient outside of
one.

A pass that the worker's own program began has a root there; one that began with a gradient from another
worker has none, and what leaves in it hangs at what arrives in it. Where one pass ends and the next begins is
not in the messages. It does where an edge, or `retain_graph`, comes again or changes, and where all gradients
were answered and every message had its gradient; but what a root has received before may leave as late as it
likes, such as when the gradient of the next stage has come and was answered.

`cannot`: why the agent engine can't replay a captured request; the plan skips what it names as `unsupported`.
torch offers to Python: calls with a captured pickle as it is, operators and TorchScript functions by their
names, backward passes and the end of a context. It answers operators, housekeeping and cleanups of live
workers by itself. Remote references have ids that it counts: a played worker has those that its own calls
have made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, field

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.agent.values import told_value
from rpcinspect.replayer.planning.facts import Carrier, rrefs_in
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchCall,
    ScriptCall,
    ScriptRemoteCall,
    ScriptRRefFetchCall,
)
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.provenance import Id

MADE_BY_TORCH = "__torch__._remote_module_"
"""How functions are named that torch writes for the interface of a RemoteModule."""
LOOSE = "nothing that torch's agent received in this pass leads to this gradient"


def cannot(call: Exchange, roles: Collection[str], holders: Mapping[Id, str]) -> str | None:
    """Why a request between a played and a live worker can't be replayed. `holders`: RRef → the
    worker whose call made it, or got it first as an answer."""
    if call.caller == call.callee:
        return "torch's agent can't send for a live worker that calls itself"
    if not all(isinstance(envelope, RpcWithAutograd) for envelope in call.request.rpc.envelopes):
        return "torch's profiler would have to run in the played worker"
    given = call.response.facts.forks if call.response is not None else ()
    if call.caller not in roles and (call.request.facts.forks or given):
        return "it brings an RRef, for which torch's agent would have to load a pickle"
    if any(holders.get(one) != call.caller for one in rrefs_in(call.request)):
        return "torch's agent has only RRefs that its own calls made or received from live workers"
    return _sent(call) if call.caller in roles else _asked(call)


def _sent(call: Exchange) -> str | None:
    command = call.request.rpc.command
    if not isinstance(command, _SENDABLE):
        return f"torch's agent can't be made to send {type_name(call.kind)}"
    if isinstance(command, (ScriptCall, ScriptRemoteCall)):
        if (command.qualified_name or "").startswith(MADE_BY_TORCH):
            return "torch's agent has no function of a scripted RemoteModule that another process has made"
        try:
            for one in command.args:
                told_value(one)
        except ReplayError as error:
            return str(error)
    return None


_SENDABLE = (
    *(PythonCall, ScriptCall, PythonRemoteCall, ScriptRemoteCall, PythonRRefFetchCall, ScriptRRefFetchCall),
    *(CleanupAutogradContextReq, PropagateGradientsReq),
)


def _asked(call: Exchange) -> str | None:
    command = call.request.rpc.command
    if isinstance(command, PropagateGradientsReq):
        if call.response is not None and call.response.rpc.message.type == MessageType.EXCEPTION:
            return "the backward pass of torch's agent can't be made to fail as it did"
        return None
    if not isinstance(command, PythonCall):
        return f"torch's agent answers {type_name(call.kind)} by itself, unseen"
    if call.response is not None and not isinstance(call.response.rpc.command, PythonResp):
        return f"torch's agent can't be made to answer with {type_name(call.response.rpc.message.type)}"
    return None


class BackwardPass(Struct):
    """A backward pass, as far as it concerns one worker."""

    context: int
    root: bool
    """It was begun by the worker's own program."""
    retain: bool
    edges: list[int] = field(default_factory=list)
    """Captured autograd message ids of received messages whose gradients leave, in order."""
    arrived: list[int] = field(default_factory=list)
    """The same of sent messages whose gradients came."""
    answered: dict[int, int] = field(default_factory=dict)
    """Index of each gradient that leaves → when it was answered."""


class RolePasses(Struct, frozen=True):
    """The backward passes of one played worker."""

    by_context: Mapping[int, tuple[BackwardPass, ...]]
    leaves: Mapping[Id, tuple[int, ...]]
    """(context, id of a sent message) → ids of received ones whose gradients hang at it, in order."""
    loose: frozenset[int]
    """Indexes of gradients that hang nowhere: what set them off can't be told."""

    @property
    def early(self) -> frozenset[int]:
        """Returns the indexes of gradients that were answered before the last one of their pass. torch only
        shows the end of a pass; calls that waited for one of these answers in the capture did not need the
        whole pass."""
        found: set[int] = set()
        for one in (one for its in self.by_context.values() for one in its if one.answered):
            found |= one.answered.keys() - {max(one.answered, key=one.answered.__getitem__)}
        return frozenset(found)

    def of(self, context: int) -> tuple[BackwardPass, ...]:
        """The passes in a context, in order."""
        return self.by_context.get(context, ())


def read_passes(
    happen: Collection[int], calls: Mapping[int, Exchange], edges: Mapping[Id, Carrier], role: str
) -> RolePasses:
    """The passes in which a worker sends gradients, or gets some, of those that happen. `calls`, `edges`: of
    its job."""
    its: dict[int, list[tuple[int, Exchange]]] = defaultdict(list)
    for call in calls.values():
        here = call.index in happen and role in (call.caller, call.callee)
        if here and isinstance(call.request.rpc.command, PropagateGradientsReq):
            when = call.begin_ns if call.caller == role else call.arrived_ns
            its[call.request.rpc.command.autograd_metadata.autograd_context_id].append((when, call))
    known = {edge: carrier for edge, carrier in edges.items() if carrier.request in calls}
    reader = _PassReader(role, known, calls)
    for context, gradients in its.items():
        reader.read(context, sorted(gradients, key=lambda one: (one[0], one[1].index)))
    return RolePasses(
        {context: tuple(found) for context, found in reader.passes.items()},
        {key: tuple(found) for key, found in reader.leaves.items()},
        frozenset(reader.loose),
    )


class _PassReader:
    """Goes through the gradients of a worker, one context after the other."""

    def __init__(self, role: str, edges: Mapping[Id, Carrier], calls: Mapping[int, Exchange]) -> None:
        self._role = role
        self._made = {edge: self._time(carrier, calls) for edge, carrier in edges.items()}
        """Edge → when the message with it was sent, or came."""
        self._own = [edge for edge, carrier in edges.items() if carrier.sender == role]
        self.passes: dict[int, list[BackwardPass]] = defaultdict(list)
        self.leaves: dict[Id, list[int]] = defaultdict(list)
        self.loose: set[int] = set()

    def _time(self, carrier: Carrier, calls: Mapping[int, Exchange]) -> int:
        call = calls[carrier.request]
        if carrier.sender == self._role:
            return (call.answered_ns or 0) if carrier.is_answer else call.begin_ns
        return (call.end_ns or 0) if carrier.is_answer else call.arrived_ns

    def read(self, context: int, gradients: Iterable[tuple[int, Exchange]]) -> None:
        current: BackwardPass | None = None
        began, last_answer = 0, 0
        for when, call in gradients:
            command = call.request.rpc.command
            assert isinstance(command, PropagateGradientsReq)
            edge, leaves = command.autograd_metadata.autograd_message_id, call.caller == self._role
            again = current is not None and edge in (current.edges if leaves else current.arrived)
            fresh = current is None or again or command.retain_graph != current.retain
            over = current is not None and last_answer <= when and self._complete(current, began)
            if over and leaves and current is not None and current.root:
                over = self._made.get((context, edge), 0) >= began  # else nothing but time parts the two
            if current is None or fresh or over:
                current = BackwardPass(context, root=leaves, retain=command.retain_graph)
                self.passes[context].append(current)
                began, last_answer = when, 0
            # The first gradient that comes is answered when the pass has ended, where it has begun it.
            last_answer = max(last_answer, call.end_ns or when + 1)
            if leaves:
                current.edges.append(edge)
                current.answered[call.index] = call.end_ns or 0
                if not current.root:
                    self._hang(current, edge, call.index)
            else:
                current.arrived.append(edge)

    def _complete(self, one: BackwardPass, began: int) -> bool:
        """Whether every message that was sent in the context before the pass has its gradient."""
        sent = [edge[1] for edge in self._own if edge[0] == one.context and self._made[edge] < began]
        return bool(one.edges or one.arrived) and set(sent) <= set(one.arrived)

    def _hang(self, one: BackwardPass, edge: int, index: int) -> None:
        """A gradient that leaves since others came: it hangs at the latest of them that could have it."""
        came = self._made.get((one.context, edge))
        for other in reversed(one.arrived):
            sent = self._made.get((one.context, other))
            if came is not None and sent is not None and came < sent:
                hanging = self.leaves[one.context, other]
                if edge not in hanging:
                    hanging.append(edge)
                return
        self.loose.add(index)


class PassProgress(Struct, eq=False):
    """How far the passes of a worker are, while gradients leave in the order of the capture."""

    passes: RolePasses
    live_edge: Callable[[int], int]
    """Captured → live id."""
    known: Collection[Id]
    """(context, live id) of what was received with an edge, as it comes."""
    number: dict[int, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    left: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Context → live ids of what has still to leave in the pass that is under way."""

    def leaves(self, context: int, edge: int) -> list[int]:
        """Live ids of the received messages whose gradients hang at what is to be sent."""
        hanging = [self.live_edge(one) for one in self.passes.leaves.get((context, edge), ())]
        return [one for one in hanging if (context, one) in self.known]

    def advance(self, context: int, edge: int) -> tuple[BackwardPass, list[int]] | None:
        """The pass that this gradient begins, with the live ids of all that leave in it; None: it is under
        way. Raises `ReplayError` where no pass of the capture has it."""
        if (context, edge) not in self.known:
            raise ReplayError("what this gradient is for did not come with an edge here")
        left, passes = self.left[context], self.passes.of(context)
        if edge in left:
            left.remove(edge)
            return None
        while self.number[context] + 1 < len(passes):
            self.number[context] += 1
            one = passes[self.number[context]]
            edges = [self.live_edge(number) for number in one.edges]
            known = [number for number in edges if (context, number) in self.known]
            if edge in known:
                self.left[context] = [number for number in known if number != edge]
                return one, known
        raise ReplayError("no backward pass of the capture has this gradient")
