"""What torch's own agent can't be made to send, or does by itself without showing it: requests of a plan.

In: a captured request, who is played. Out: why the agent engine can't replay it, in words; None: it can.
The plan skips what it names as `unsupported`.

torch offers to Python: calls with a captured pickle as it is, operators and TorchScript functions by their
names, backward passes and the end of a context. It answers operators, housekeeping and clean-ups of live
workers by itself. Remote references have ids that it counts: a played worker has those that its own calls
have made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rpcinspect.errors import ReplayError
from rpcinspect.replay.agent.values import told_value
from rpcinspect.replay.planning.facts import Id
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
from rpcinspect.rpc.questions import rref_of
from rpcinspect.run.exchanges import Exchange

LOOSE = "nothing that torch's agent received in this pass would set this gradient off"


def cannot(call: Exchange, roles: Collection[str], holders: Mapping[Id, str]) -> str | None:
    """Why a request between a played and a live worker can't be replayed. `holders`: RRef → the
    worker whose call made it, or got it first as an answer."""
    if call.caller == call.callee:
        return "torch's agent can't speak for a live worker, which calls itself here"
    if not all(isinstance(envelope, RpcWithAutograd) for envelope in call.request.rpc.envelopes):
        return "torch's profiler would have to run in the played worker"
    forks = call.request.facts.forks if call.caller in roles else ()
    rref = rref_of(call.request)
    used = [fork.rref_id for fork in forks] + ([] if rref is None else [rref])
    theirs = call.request.facts.forks if call.caller not in roles else ()
    given = call.response.facts.forks if call.caller not in roles and call.response is not None else ()
    if theirs or given:
        return "it brings an RRef, which torch's agent would have to load a pickle for"
    if any(holders.get(one) != call.caller for one in used):
        return "torch's agent has only such RRefs as its own calls have made or brought, of live workers"
    return _sent(call) if call.caller in roles else _asked(call)


def _sent(call: Exchange) -> str | None:
    command = call.request.rpc.command
    if not isinstance(command, _SENDABLE):
        return f"torch's agent can't be made to send {type_name(call.kind)}"
    if isinstance(command, (ScriptCall, ScriptRemoteCall)):
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
        return f"torch's agent answers {type_name(call.kind)} by itself, and shows nothing of it"
    if call.response is not None and not isinstance(call.response.rpc.command, PythonResp):
        return f"torch's agent can't be made to answer with {type_name(call.response.rpc.message.type)}"
    return None
