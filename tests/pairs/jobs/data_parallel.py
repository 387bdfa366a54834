"""Two trainers with a data parallel layer (gloo between them) look rows up at a server that asks another."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.pairs.common import numbers, pause, send, wait

TRAINERS, STEPS, LOOKS = 2, 4, 4
LABELS = [f"look 0 {step} {n}" for step in range(STEPS) for n in range(LOOKS)]


def look(x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return rpc.rpc_sync("worker3", row, args=(x * 2 + 1, shift)) + 1


def look_otherwise(x: torch.Tensor, shift: int) -> torch.Tensor:
    return rpc.rpc_sync("worker3", row, args=(x * 2 + 1, shift)) - 1


def row(x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return x % 64 + shift


def train(rank: int) -> None:
    meeting = f"tcp://127.0.0.1:{os.environ['PAIRS_GROUP_PORT']}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=TRAINERS)
    torch.manual_seed(1)
    layer = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(layer.parameters(), lr=2.0**-10)
    for step in range(STEPS):
        started = []
        for n in range(LOOKS):
            args = (numbers(100 * rank + 10 * step + n), 3)
            label = f"look {rank} {step} {n}"
            started.append(send(rpc.rpc_async, label, "worker2", look, args, look_otherwise))
        optimizer.zero_grad()
        layer(torch.stack(wait(started))).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


def work() -> None:
    train(0)


def beside(rank: int) -> None:
    if rank < TRAINERS:
        train(rank)
