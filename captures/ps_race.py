"""D09: three trainers share a parameter server; without a lock one's step spoils the others' backward.

`ps_race.py lock` takes a lock on the server around forward, backward and step.

The server computes element by element and learns at a rate that is a power of two, so that its bits are the same on
any processor (README.md says why).
"""

from __future__ import annotations

import threading
import time

import torch
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

import common

WORLD = 4
STEPS = 4
SERVER = "worker0"

_weights: dict[str, torch.Tensor] = {}
_turn = threading.Lock()
_order = threading.Lock()


def weight() -> torch.Tensor:
    """The one weight of the server, made by whoever comes first."""
    with _order:
        if "weight" not in _weights:
            _weights["weight"] = torch.full((4, 4), 0.5, requires_grad=True)
        return _weights["weight"]


def make_weight() -> torch.Tensor:
    return weight()


def forward(x: torch.Tensor, trainer: str) -> torch.Tensor:
    with _order:
        common.truth("order", what="forward", trainer=trainer, version=_weights["weight"]._version)
        hidden = torch.clamp(x * _weights["weight"], -1, 1)
        return hidden * _weights["weight"]  # its backward needs the weight as it is now


def take_turn(trainer: str) -> None:
    _turn.acquire(timeout=common.RPC_SECONDS)
    common.truth("order", what="turn", trainer=trainer, version=_weights["weight"]._version)


def end_turn(trainer: str) -> None:
    common.truth("order", what="end", trainer=trainer, version=_weights["weight"]._version)
    _turn.release()


def run(rank: int, variant: str = "race") -> None:
    with common.worker(rank, WORLD, common.backend_options(threads=8)) as name:
        if rank > 0:
            train(rank, name, variant == "lock")


def train(rank: int, name: str, lock: bool) -> None:
    """Trainers take different times between forward and backward, so that a step falls in between."""
    handle = rpc.remote(SERVER, make_weight)
    optimizer = DistributedOptimizer(torch.optim.SGD, [handle], lr=0.125)
    for step in range(STEPS):
        if lock:
            rpc.rpc_sync(SERVER, take_turn, args=(name,))
        try:
            with common.context(note=f"step {step}") as context_id:
                x = torch.randint(-32, 33, (4, 4)) / 8
                out = rpc.rpc_sync(SERVER, forward, args=(x, name))
                time.sleep(0.002 if lock else 0.1 * rank)
                common.backward(context_id, [out.sum()])
                common.truth("step", step=step, context_id=context_id)
                optimizer.step(context_id)
        except RuntimeError as error:
            common.truth("died", step=step, trainer=name, error=common.error_of(error))
            return
        finally:
            if lock:
                rpc.rpc_sync(SERVER, end_turn, args=(name,))
    common.truth("finished", trainer=name, steps=STEPS)


if __name__ == "__main__":
    common.launch(WORLD)
