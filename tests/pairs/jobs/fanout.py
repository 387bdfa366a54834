"""Fan-outs to three workers in an order that each run draws; half of the calls make one of their own.

Meanwhile the program of worker1 makes calls of the same function that it also makes for others.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.rpc as rpc

from tests.pairs.common import numbers, pause, send, shuffled, wait

CALLS = 24
LABELS = [f"call {n}" for n in range(2 * CALLS)]


def compute(x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return x * 3 + shift


def compute_otherwise(x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return x * 3 - shift


def ask(x: torch.Tensor, shift: int, whom: str) -> torch.Tensor:
    pause()
    return rpc.rpc_sync(whom, compute, args=(x * 2 + 1, shift)) + 1


def ask_otherwise(x: torch.Tensor, shift: int, whom: str) -> torch.Tensor:
    pause()
    return rpc.rpc_sync(whom, compute, args=(x * 2 + 1, shift)) - 1


def start(n: int) -> Any:
    to, next_one = f"worker{1 + n % 3}", f"worker{1 + (n + 1) % 3}"
    if n % 2:
        return send(rpc.rpc_async, f"call {n}", to, ask, (numbers(n), 3, next_one), ask_otherwise)
    return send(rpc.rpc_async, f"call {n}", to, compute, (numbers(n), 3), compute_otherwise)


def work() -> None:
    for turn in range(2):
        wait([start(n) for n in shuffled(range(turn * CALLS, (turn + 1) * CALLS))])


def beside(rank: int) -> None:
    if rank == 1:
        started = []
        for n in range(12):
            pause()
            started.append(rpc.rpc_async("worker2", compute, args=(numbers(200 + n), 3)))
        wait(started)
