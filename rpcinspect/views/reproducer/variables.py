"""What stands for what in a worker's program: variables of calls, tensors of the file, references.

In: a program and what it is part of. Out: expressions. Tensors of a request are those of the file, unless
they were computed from answers to earlier calls (`in8[0]`), or are one and the same.
"""

from __future__ import annotations

from rpcinspect.replay.planning.facts import Id, rrefs_in
from rpcinspect.replay.reproduction.program_model import Block, Pass, Program, Send, Together, blocks_of
from rpcinspect.replay.reproduction.program_parts import is_optimizers
from rpcinspect.replay.reproduction.reproduced import Gradient, Reproduction, needing_gradient
from rpcinspect.rpc.command import PropagateGradientsReq, ScriptCall, ScriptRemoteCall
from rpcinspect.rpc.pickles.places import tensor_places
from rpcinspect.rpc.pickles.semantic import RRefForkData
from rpcinspect.rpc.questions import REMOTE, result_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import LOCAL_ID_BITS
from rpcinspect.run.exchanges import Exchange
from rpcinspect.views.reproducer.names import accessor
from rpcinspect.views.reproducer.python_names import quoted
from rpcinspect.views.reproducer.python_source import Names
from rpcinspect.views.reproducer.tensors import TensorCollection, name_of


class Variables:
    """Of one program."""

    def __init__(self, made: Reproduction, program: Program, tensors: TensorCollection) -> None:
        self._made = made
        self._program = program
        self._tensors = tensors
        self.uses: set[str] = set()
        """Helpers of the script that expressions need."""

    def shared(self, part: Together) -> list[list[int]]:
        """For each lane the calls that it makes and of which others use an RRef."""
        key = (self._program.job, self._program.worker)
        shared = []
        for lane in part.lanes:
            own = {event.call.index for event in lane.events if isinstance(event, Send)}
            used: set[int] = set()
            for block in blocks_of(self._program):
                for event in block.events if block is not lane else ():
                    call = event.trigger if isinstance(event, Pass) else event.call
                    for rref in rrefs_in(call.request) if call is not None else ():
                        used.add(self._made.handles[key[0], key[1], rref].request)
            shared.append(sorted(own & used))
        return shared

    def variable(self, index: int) -> str:
        """What holds the outcome of a call."""
        kind = self._made.calls[index].kind
        return f"rref{index}" if kind in REMOTE else f"out{index}"

    def leaves(self, call: Exchange) -> list[str]:
        """The tensors of a request that get a gradient, each once."""
        record = call.request
        same = same_tensors(record)
        return list(dict.fromkeys(name_of(call.index, same.get(i, i)) for i in needing_gradient(record)))

    def arguments(self, call: Exchange) -> dict[int, str]:
        """Tensor → what stands for it, where that is not the tensor of the file."""
        same = same_tensors(call.request)
        found = {i: f't["{name_of(call.index, j)}"]' for i, j in same.items()}
        if call.index in self._program.links:
            leaves = self.leaves(call)
            for i in needing_gradient(call.request):
                found[i] = f"in{call.index}[{leaves.index(name_of(call.index, same.get(i, i)))}]"
        return found

    def outputs(self, gradient: Gradient) -> list[str]:
        """Where in an answer the tensors of a gradient are."""
        call = self._made.calls[gradient.request]
        assert call.response is not None
        places = tensor_places(result_of(call.response))
        return [f"out{call.index}{accessor(places[i])}" for i in gradient.tensors]

    def given(self, gradient: Gradient) -> list[str]:
        """The recorded tensors of a gradient."""
        command = gradient.call.request.rpc.command
        assert isinstance(command, PropagateGradientsReq)
        self._tensors.add(gradient.call.index, gradient.call.request)
        return [f't["{name_of(gradient.call.index, i)}"]' for i in command.grads]

    def names(
        self,
        message: int,
        tensors: dict[int, str],
        *,
        ours: bool = False,
        integers: dict[int, str] | None = None,
    ) -> Names:
        """For one message; `ours`: a request, whose RRefs are those that its sender has."""

        def tensor(index: int) -> str:
            return tensors.get(index, f't["{name_of(message, index)}"]')

        def rref(fork: RRefForkData) -> str:
            if ours:
                return self.handle(fork.rref_id)
            self.uses.add("rref_of")
            owner = self._owner(fork)
            return f"RRefOf({'None' if owner is None else quoted(owner)})"

        return Names(tensor, rref, integers or {})

    def _owner(self, fork: RRefForkData) -> str | None:
        for worker in self._made.workers[self._program.job]:
            if worker.id == fork.owner_id:
                return worker.name
        return None

    def handle(self, rref: Id) -> str:
        """The variable of an RRef."""
        handle = self._made.handles[self._program.job, self._program.worker, rref]
        if handle.how == "owned":
            return f"own{handle.request}"
        if handle.how == "made":
            return f"rref{handle.request}"
        return f"out{handle.request}{accessor(handle.place)}"


def same_tensors(record: RpcRecord) -> dict[int, int]:
    """Arguments of an operator that are one tensor: later → first. Python's pickles write a tensor once."""
    if not isinstance(record.rpc.command, (ScriptCall, ScriptRemoteCall)):
        return {}
    found: dict[int, int] = {}
    for i, meta in enumerate(record.rpc.tensors):
        if meta.part_of is None and meta.storage is not None:
            first = record.rpc.tensors.index(meta)
            if first != i:
                found[i] = first
    return found


def integers_of(call: Exchange, block: Block) -> dict[int, str]:
    """The id of the context in which a call is made, if it is surely that: a small number may be another."""
    context = block.context
    if context is None or (context >> LOCAL_ID_BITS == 0 and not is_optimizers(call)):
        return {}
    return {context: "context_id"}
