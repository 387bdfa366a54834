"""TorchScript functions that call others asynchronously; no Python runs where they are served."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch import Tensor
from torch.futures import Future

from tests.pairs.common import altered, numbers, pause, wait
from tests.pairs.truth_log import follows, labelled, name_of

CALLS = 10
LABELS = [f"relay {n}" for n in range(CALLS)] + [f"forward {n}" for n in range(CALLS)]


@torch.jit.script
def delay() -> Tensor:
    """Take a while, drawn anew each time."""
    found = torch.zeros(32, 32)
    for _ in range(int(torch.randint(0, 1500, (1,)).item())):
        found = torch.mm(found, found)
    return found


@torch.jit.script
def leaf(x: Tensor, shift: int) -> Tensor:
    delay()
    return x + shift


@torch.jit.script
def relay(x: Tensor, shift: int) -> Tensor:
    delay()
    found = rpc.rpc_async("worker2", leaf, (x * 2 + 1, shift))
    return found.wait() + 1


@torch.jit.script
def relay_otherwise(x: Tensor, shift: int) -> Tensor:
    found = rpc.rpc_async("worker2", leaf, (x * 2 + 1, shift))
    return found.wait() - 1


@rpc.functions.async_execution
@torch.jit.script
def forward(x: Tensor, shift: int) -> Future[Tensor]:
    delay()
    return rpc.rpc_async("worker3", leaf, (x * 2 + 1, shift))


@rpc.functions.async_execution
@torch.jit.script
def forward_otherwise(x: Tensor, shift: int) -> Future[Tensor]:
    return rpc.rpc_async("worker3", leaf, (x * 2 + 1, shift))


def start(label: str, function: Any, other: Any, x: Tensor) -> Any:
    made = altered(label, function, other, (x, 3))
    if made is None:
        return None
    called, args = made
    follows("worker1", name_of(leaf), args[0] * 2 + 1, name_of(called), args[0])
    with labelled(label):
        return rpc.rpc_async("worker1", called, args=args)


def work() -> None:
    torch.seed()
    started = []
    for n in range(CALLS):
        pause(3)
        started.append(start(f"relay {n}", relay, relay_otherwise, numbers(n)))
        started.append(start(f"forward {n}", forward, forward_otherwise, numbers(100 + n)))
    wait(started)
