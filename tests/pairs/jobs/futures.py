"""Asynchronous functions: they return a future at once, and callbacks of it make the next calls.

Meanwhile the program of worker1 makes calls of the same function that its callbacks make.
"""

from __future__ import annotations

import torch
import torch.distributed.rpc as rpc
from torch.futures import Future

from tests.pairs.common import numbers, pause, send, wait

CALLS = 10
LABELS = [f"once {n}" for n in range(CALLS)] + [f"twice {n}" for n in range(CALLS)]


def leaf(x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return x + shift


@rpc.functions.async_execution
def once(x: torch.Tensor, shift: int) -> Future[torch.Tensor]:
    pause(5)
    return rpc.rpc_async("worker2", leaf, args=(x * 2 + 1, shift)).then(lambda found: found.wait() + 1)


@rpc.functions.async_execution
def once_otherwise(x: torch.Tensor, shift: int) -> Future[torch.Tensor]:
    return rpc.rpc_async("worker2", leaf, args=(x * 2 + 1, shift)).then(lambda found: found.wait() - 1)


@rpc.functions.async_execution
def twice(x: torch.Tensor, shift: int) -> Future[torch.Tensor]:
    """The second call is made by the callback of the first one's future."""
    result: Future[torch.Tensor] = Future()

    def go_on(found: Future[torch.Tensor]) -> None:
        after = rpc.rpc_async("worker3", leaf, args=(found.wait() * 2 + 1, shift))
        after.then(lambda last: result.set_result(last.wait() + 1))

    rpc.rpc_async("worker2", leaf, args=(x * 2 + 1, shift)).then(go_on)
    return result


@rpc.functions.async_execution
def twice_otherwise(x: torch.Tensor, shift: int) -> Future[torch.Tensor]:
    return twice(x, shift)


def work() -> None:
    started = []
    for n in range(CALLS):
        args, more = (numbers(n), 3), (numbers(100 + n), 3)
        started.append(send(rpc.rpc_async, f"once {n}", "worker1", once, args, once_otherwise))
        started.append(send(rpc.rpc_async, f"twice {n}", "worker1", twice, more, twice_otherwise))
    wait(started)


def beside(rank: int) -> None:
    """The callbacks of the program's own futures make calls too."""
    if rank != 1:
        return
    more = []

    def go_on(found: Future[torch.Tensor]) -> None:
        more.append(rpc.rpc_async("worker2", leaf, args=(found.wait() * 2 + 1, 3)))

    wait([rpc.rpc_async("worker3", leaf, args=(numbers(200 + n), 3)).then(go_on) for n in range(6)])
    wait(more)
