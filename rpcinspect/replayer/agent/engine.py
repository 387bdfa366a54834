"""The agent engine: torch's own agents in the place of played workers, in a session that is otherwise the
same.

In: a group of live workers, and what a session is played from. Out: an `AgentPeer` for each played worker;
the player, its schedule and its comparisons do not know the difference. Beside this module,
`passes` says in the plan what torch's agent can't do, and which gradients belong together, `peer` speaks
with the process that `main` and `tensors` run in, `values` knows both languages.
"""

from __future__ import annotations

from collections.abc import Mapping

from rpcinspect.replayer.agent.messages import autograd_envelope, made
from rpcinspect.replayer.agent.passes import RolePasses, read_passes
from rpcinspect.replayer.agent.peer import AgentPeer, RoleInputs
from rpcinspect.replayer.agent.values import MapDevice
from rpcinspect.replayer.peers.loop import Loop
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.planning.facts import read_facts
from rpcinspect.replayer.planning.model import PlannedSession
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.replayer.workers.worker_protocol import HOST
from rpcinspect.rpc.command import PythonCall
from rpcinspect.rpc.types import pack_id, unpack_id
from rpcinspect.run.run import RunModel

NO_EDGE = (1 << 48) - 1
"""Counter of an autograd message id that no worker comes to."""


class ContextImporter:
    """Brings autograd contexts of other workers to played ones, as a worker does that calls one there: by a
    request of its own, in a context. torch sets a context in the thread that serves such a request only."""

    def __init__(self, loop: Loop, store: StoreClient) -> None:
        self._peer = Peer(loop, "rpcinspect", -1)
        self._store = store

    def __call__(self, to: str, context: int) -> None:
        """The request; it is answered when the context is released there."""
        creator, _ = unpack_id(context)
        self._peer.addresses[to] = self._store.get(f"addrs/{to}").decode("utf-8", "replace")
        command = PythonCall(HOST, False)
        envelope = autograd_envelope(context, pack_id(creator, NO_EDGE), creator, command, answer=False)
        self._peer.send(to, made(command, [envelope]))


def passes_of(run: RunModel, planned: PlannedSession) -> dict[str, RolePasses]:
    """The backward passes of each played worker."""
    happen = {step.message for step in planned.steps if step.action != "skip"}
    edges = read_facts(run)[planned.cast.job].edges
    return {role: read_passes(happen, run.calls, edges, role) for role in planned.cast.roles}


def start_agents(
    group: LiveGroup,
    loop: Loop,
    inputs: SessionInputs,
    passes: Mapping[str, RolePasses],
    place: MapDevice,
    bring: ContextImporter,
) -> dict[str, AgentPeer]:
    """Starts a process for each played worker; each is a member of the group and has begun when this returns:
    until then torch unpickles what comes, and another worker's request may be quicker than our word to the
    process."""
    parts = {role: _part(role, inputs, passes[role], place) for role in inputs.planned.cast.roles}
    children = {
        role: group.start_agent(role, inputs.worker_ids[role], len(part.contexts))
        for role, part in parts.items()
    }
    peers = {
        role: AgentPeer(loop, parts[role], child.control, group.workers, bring)
        for role, child in children.items()
    }
    for peer in peers.values():
        peer.begin()
    return peers


def _part(role: str, inputs: SessionInputs, passes: RolePasses, place: MapDevice) -> RoleInputs:
    steps = [step for step in inputs.planned.steps if step.role == role and step.message in inputs.calls]
    steps.sort(key=lambda step: step.action == "skip")  # of questions alike, the expected one first
    calls = [inputs.calls[step.message] for step in steps]
    return RoleInputs(
        role=role,
        inputs=inputs,
        asked=[call for call in calls if call.callee == role],
        passes=passes,
        place=place,
        contexts=sorted({call.context for call in calls if call.caller == role and call.context is not None}),
    )
