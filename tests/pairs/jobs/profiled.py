"""Calls under the autograd profiler, eight at once, each with one of its own, and some out of it."""

from __future__ import annotations

import torch
import torch.distributed.rpc as rpc
from torch.autograd import profiler_legacy

from tests.pairs.common import numbers, pause, send, wait

CALLS = 16
LABELS = [f"ask {n}" for n in range(CALLS)]


def ask(x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return rpc.rpc_sync("worker3", compute, args=(x, shift)) + 1


def ask_otherwise(x: torch.Tensor, shift: int) -> torch.Tensor:
    return rpc.rpc_sync("worker3", compute, args=(x, shift)) - 1


def compute(x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return x * 3 + shift


def some(calls: range) -> None:
    wait(
        [
            send(rpc.rpc_async, f"ask {n}", f"worker{1 + n % 2}", ask, (numbers(n), 3), ask_otherwise)
            for n in calls
        ]
    )


def work() -> None:
    with profiler_legacy.profile():
        some(range(CALLS // 2))
    some(range(CALLS // 2, CALLS))
