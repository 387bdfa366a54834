"""One RRef in eight calls at once: to its owner, to a worker that fetches it, and on to a third one."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.rpc as rpc

from tests.pairs.common import numbers, pause, send, wait

CALLS = 8
LABELS = [f"borrow {n}" for n in range(CALLS)]


def make() -> torch.Tensor:
    return torch.full((4,), 3.0)


def use(factor: Any, x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return factor.local_value() * x + shift


def borrow(factor: Any, x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    value = factor.to_here() * x + shift
    pause(10)
    return value


def borrow_otherwise(factor: Any, x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return factor.to_here() * x - shift


def pass_on(factor: Any, x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return rpc.rpc_sync("worker3", borrow, args=(factor, x + 7, shift)) - 1


def work() -> None:
    factor = rpc.remote("worker1", make)
    futures = []
    for n in range(CALLS):
        futures.append(rpc.rpc_async("worker1", use, args=(factor, numbers(n), 1)))
        call = (factor, numbers(100 + n), 2)
        futures.append(send(rpc.rpc_async, f"borrow {n}", "worker2", borrow, call, borrow_otherwise))
        futures.append(rpc.rpc_async("worker2", pass_on, args=(factor, numbers(200 + n), 3)))
    wait(futures)
