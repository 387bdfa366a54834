"""Calls within calls, two deep: worker0 → worker1 → worker2 → worker3, eight at once, twice."""

from __future__ import annotations

import torch
import torch.distributed.rpc as rpc

from tests.pairs.common import numbers, pause, send, wait

CALLS = 8
LABELS = [f"outer {n}" for n in range(2 * CALLS)]


def outer(x: torch.Tensor, shift: int, key: int) -> torch.Tensor:
    pause()
    found = rpc.rpc_sync("worker2", middle, args=(x * 2 + 1, shift, key))
    pause(5)
    return found + 1


def outer_otherwise(x: torch.Tensor, shift: int, key: int) -> torch.Tensor:
    pause()
    return rpc.rpc_sync("worker2", middle, args=(x * 2 + 1, shift, key)) - 1


def middle(x: torch.Tensor, shift: int, key: int) -> torch.Tensor:
    pause()
    return rpc.rpc_sync("worker3", inner, args=(x * 2 + 1, shift, key)) + shift


def inner(x: torch.Tensor, shift: int, key: int) -> torch.Tensor:
    pause()
    return x - shift


def work() -> None:
    for turn in range(2):
        calls = range(turn * CALLS, (turn + 1) * CALLS)
        wait(
            [
                send(rpc.rpc_async, f"outer {n}", "worker1", outer, (numbers(n), 3, n), outer_otherwise)
                for n in calls
            ]
        )
