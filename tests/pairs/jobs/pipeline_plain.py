"""A pipeline of `remote()` calls out of autograd contexts: each stage fetches what the one before made."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.rpc as rpc

from tests.pairs.common import numbers, pause, send

BATCHES = 8
LABELS = [f"first {batch}" for batch in range(BATCHES)]


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def run(self, x: torch.Tensor, shift: int) -> torch.Tensor:
        return x * self.factor + shift


def first(stage: Any, x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return stage.local_value().run(x, shift)


def first_otherwise(stage: Any, x: torch.Tensor, shift: int) -> torch.Tensor:
    pause()
    return stage.local_value().run(x, -shift)


def second(stage: Any, before: Any, shift: int) -> torch.Tensor:
    pause()
    return stage.local_value().run(before.to_here(), shift)


def third(stage: Any, before: Any, shift: int) -> torch.Tensor:
    pause()
    value = before.to_here()
    pause(5)
    return stage.local_value().run(value, shift)


def through(batches: list[torch.Tensor]) -> list[torch.Tensor]:
    """All micro-batches through the three stages, whose RRefs all calls share."""
    stages = [rpc.remote(f"worker{n}", Scale, args=(float(n + 1),)) for n in (1, 2, 3)]
    outs = []
    for batch, x in enumerate(batches):
        one = send(rpc.remote, f"first {batch}", "worker1", first, (stages[0], x, 1), first_otherwise)
        if one is not None:
            two = rpc.remote("worker2", second, args=(stages[1], one, 2))
            outs.append(rpc.remote("worker3", third, args=(stages[2], two, 3)))
    return [out.to_here() for out in outs]


def work() -> None:
    through([numbers(batch) for batch in range(BATCHES)])
