"""What `rpcinspect doctor` finds out of torch: in processes of its own, since importing it takes seconds.

In: an interpreter, that of rpcinspect or of a job. Out: facts on torch, its GPUs, and the recorder's agent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

from rpcinspect.cli.probes import MachineFact, told_by, without_pointer
from rpcinspect.cli.requirements import missing_torch
from rpcinspect.errors import RecordError, ReplayError
from rpcinspect.recorder.library import AgentLook, TorchLook
from rpcinspect.replayer.workers.interpreters import (
    NEWEST_TESTED_TORCH,
    OLDEST_TORCH,
    Interpreter,
    examine,
    release_of,
)

TORCH_S = 15.0
"""For importing torch, beside everything else."""


class TorchSearch:
    """Looks at torch in processes of its own, beside the other probes."""

    def __init__(self, program: str | None) -> None:
        """`program`: the interpreter; None: this one."""
        self.look = TorchLook()
        """What is known of torch, and of the recorder's agent for it."""
        self._asked: AgentLook | None = None
        try:
            self._asked = AgentLook(program or sys.executable)
        except RecordError as error:
            self.look = TorchLook(why=str(error))
        self.interpreter: Interpreter | None = None
        self.why = None if program is not None else missing_torch()
        """Why no live worker can run there."""
        try:
            self.interpreter = examine(program or sys.executable)
        except ReplayError as error:
            self.why = self.why or str(error)

    def wait(self) -> None:
        """Waits for what was found."""
        if self._asked is not None:
            self.look = self._asked.answer(TORCH_S)


def torch(search: TorchSearch) -> Iterator[MachineFact]:
    """Looks at torch: its release against those that replays were tried on, RPC in it, GPUs."""
    own, look = search.interpreter, search.look
    fact = partial(MachineFact, name="torch", needed_for="replay, reproduce")
    if own is None:
        found, _, remedy = (search.why or "").partition(" here: ")
        yield fact(state="missing", found=found, remedy=without_pointer(remedy) or None)
    else:
        low, high = (".".join(map(str, pair)) for pair in (OLDEST_TORCH, NEWEST_TESTED_TORCH))
        newer = "newer than tested: " if release_of(own.torch) > NEWEST_TESTED_TORCH else ""
        where = f"{own.torch} in {own.program} (Python {own.python})"
        yield fact(state="ok", found=f"{where}; {newer}replays are tested with {low} to {high}")
    fact = partial(MachineFact, name="torch's RPC", needed_for="replay, record --via agent")
    if look.rpc:
        yield fact(state="ok", found="TensorPipe")
    else:
        yield fact(state="unknown" if look.late else "missing", found=look.why or "")
    yield _gpu(look)


def _gpu(look: TorchLook) -> MachineFact:
    """Returns what GPUs torch has here."""
    fact = partial(MachineFact, name="GPU", needed_for="replay --device cuda")
    if look.gpus is None:
        return fact(state="unknown" if look.late else "none", found=look.why or "")
    built = f"torch is built for {look.cuda}" if look.cuda else "torch is built without CUDA"
    if look.gpus:
        return fact(state="ok", found=f"{len(look.gpus)}, the first is {look.gpus[0]}; {built}")
    there = _listed_gpu()
    if there is None:
        return fact(state="none", found=f"none; {built}")
    remedy = None if look.cuda else "install a torch that is built for CUDA"
    return fact(state="missing", found=f"{there}, but {built}", remedy=remedy)


def _listed_gpu() -> str | None:
    """Returns the first GPU that the driver names."""
    lines = told_by(["nvidia-smi", "-L"])
    return lines[0].partition(" (")[0] if lines else None


def agent(search: TorchSearch) -> Iterator[MachineFact]:
    """Looks at the part of the recorder that is built for each release of torch."""
    look = search.look
    fact = partial(MachineFact, name="agent", needed_for="record --via agent, recordings from Python")
    if look.library is not None:
        yield fact(state="ok", found="built for this torch")
    elif look.compiler is not None:
        yield fact(state="ok", found=f"{look.compiler} builds it at the first recording, in a minute")
    else:
        found = look.lacks or look.why or ""
        yield fact(state="missing", found=found, remedy="record --via wire needs no agent")


TORCH_PROBES: tuple[Callable[[TorchSearch], Iterator[MachineFact]], ...] = (torch, agent)
"""Those that want what `TorchSearch` finds meanwhile."""
