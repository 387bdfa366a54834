"""What a worker does beside its requests: threads that a request left behind make calls after its answer, and
the program fetches an RRef that it kept, while requests are open that bring the same one.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.distributed.rpc as rpc

from tests.pairs.common import SECONDS, numbers, pause, send, wait

CALLS = 10
LABELS = [f"borrow {n}" for n in range(CALLS)]

_kept: list[Any] = []
_threads: list[threading.Thread] = []
_began, _done = threading.Event(), threading.Event()


def make() -> torch.Tensor:
    return torch.full((4,), 3.0)


def keep(factor: Any) -> None:
    _kept.append(factor)
    _began.set()


def leaf(x: torch.Tensor, shift: int) -> torch.Tensor:
    pause(10)
    return x + shift


def borrow(factor: Any, x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    value = factor.to_here() * x
    return rpc.rpc_sync("worker3", leaf, args=(value + 1, shift))


def borrow_otherwise(factor: Any, x: torch.Tensor, shift: int) -> torch.Tensor:
    return borrow(factor, x, shift)


def leave_behind(x: torch.Tensor, shift: int) -> torch.Tensor:
    thread = threading.Thread(target=later, args=(x * 2 + 1, shift))
    thread.start()
    _threads.append(thread)
    return x + shift


def later(x: torch.Tensor, shift: int) -> None:
    pause(40)
    rpc.rpc_sync("worker3", leaf, args=(x, shift))


def finish() -> None:
    """Wait for all that goes on beside."""
    _done.wait(SECONDS)
    for thread in _threads:
        thread.join(SECONDS)


def work() -> None:
    factor = rpc.remote("worker1", make)
    rpc.rpc_sync("worker2", keep, args=(factor,))
    started = []
    for n in range(CALLS):
        pause()
        started.append(rpc.rpc_async("worker2", leave_behind, args=(numbers(n), 3)))
        call = (factor, numbers(100 + n), 3)
        started.append(send(rpc.rpc_async, f"borrow {n}", "worker2", borrow, call, borrow_otherwise))
    wait(started)
    rpc.rpc_sync("worker2", finish)


def beside(rank: int) -> None:
    if rank != 2:
        return
    _began.wait(SECONDS)
    factor = _kept.pop()
    for n in range(CALLS):
        pause()
        value = factor.to_here()
        pause(10)
        rpc.rpc_sync("worker3", leaf, args=(value * numbers(200 + n), 3))
    _done.set()
