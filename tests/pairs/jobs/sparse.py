"""Sparse gradients: three threads, each with a table, a context for each step and an optimizer of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.optim import DistributedOptimizer

from tests.pairs.common import numbers, pause, send

THREADS, STEPS = 3, 3
LABELS = [f"look {thread} {step}" for step in range(STEPS) for thread in range(THREADS)]


class Table:
    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randint(0, 8, (10, 4), generator=generator).float()
        self.bag = nn.EmbeddingBag.from_pretrained(weight, freeze=False, mode="sum", sparse=True)


def make_weight(table: Any) -> rpc.RRef:
    return rpc.RRef(table.local_value().bag.weight)


def look(table: Any, x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    rows = (x.long() // 64 + torch.arange(4) + shift) % 10
    found = table.local_value().bag(rows, torch.tensor([0, 2]))
    return rpc.rpc_sync("worker3", scale, args=(found + x.detach(), shift))


def look_otherwise(table: Any, x: torch.Tensor, shift: int) -> torch.Tensor:
    return look(table, x, shift)


def scale(x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return x * (1 + shift)


def train(thread: int) -> None:
    to = f"worker{1 + thread % 2}"
    table = rpc.remote(to, Table, args=(thread,))
    weight = rpc.rpc_sync(to, make_weight, args=(table,))
    optimizer = DistributedOptimizer(torch.optim.SGD, [weight], lr=0.5)
    for step in range(STEPS):
        with dist_autograd.context() as context_id:
            args = (table, numbers(10 * thread + step), 1)
            found = send(rpc.rpc_sync, f"look {thread} {step}", to, look, args, look_otherwise)
            if found is not None:
                dist_autograd.backward(context_id, [found.sum()])
                optimizer.step(context_id)


def work() -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(train, range(THREADS)))
