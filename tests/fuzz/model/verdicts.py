"""The gate, as the model test asks it: one pickle, one decision of the user."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from rpcinspect.pickles.tree import Global
from rpcinspect.replayer.planning.gate import Allowance, ExecutionPolicy
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.rpc.decode import RpcDecoder
from rpcinspect.rpc.message import RpcMessage
from rpcinspect.rpc.pickle_facts import FactsReader
from rpcinspect.rpc.record import RpcRecord
from tests.fuzz.model.script_values import TABLE
from tests.replayer.talks import answer_of, request_of

HERE = Path(__file__).parent


class Decision(Struct, frozen=True):
    """What a user allowed."""

    allow: tuple[str, ...] = ()
    path: bool = False
    """`--path` of the folder `src`."""

    def gate(self) -> ExecutionPolicy:
        """The gate that decides so."""
        found = [Allowance.parse(text) for text in self.allow]
        sources = Sources(None, [HERE / "src"]) if self.path else None
        return ExecutionPolicy([one for one in found if one is not None], sources)


DECISIONS = {
    "nothing": Decision(),
    "path": Decision(path=True),
    "names": Decision(
        ("job:step", "job:Net", "job:Item", "job:Server", "job:Plain", "job:Item.static", "job:Stateful")
    ),
    "module": Decision(("job",)),
}
MADE = {
    (0, 0): Global("job", "Item"),
    (0, 1): Global("job", "Net"),
    (0, 2): Global("torch.nn.modules.linear", "Linear"),
}
"""RRefs of the live worker, as the capture tells of them; `worker` makes them so."""
_GATES = {name: decision.gate() for name, decision in DECISIONS.items()}


def verdict(data: bytes, sort: str, decision: str) -> tuple[bool, tuple[str, ...]]:
    """Whether the gate lets a pickle through, and the names that the plan has as allowed."""
    found = _GATES[decision].inspect(_record(data, sort), MADE)
    return all(named.allowed for named in found), tuple(named.name for named in found if named.allowed)


def refused(data: bytes, sort: str, decision: str) -> tuple[str, ...]:
    """Why not: name and reason of all that is refused."""
    found = _GATES[decision].inspect(_record(data, sort), MADE)
    return tuple(f"{named.name}: {named.reason}" for named in found if not named.allowed)


def _record(data: bytes, sort: str) -> RpcRecord:
    if sort.isdigit():
        rpc = RpcDecoder().decode(RpcMessage(int(sort), 0, data, TABLE))
        return RpcRecord(0, None, rpc, FactsReader().read(rpc.command), ())  # type: ignore[arg-type]
    return request_of(data) if sort == "request" else answer_of(data)


def strict(decision: str) -> bool:
    """Whether only files were named."""
    return DECISIONS[decision].path
