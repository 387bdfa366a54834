"""Two RemoteModules, called eight times each at once; their forward asks a third worker."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.nn import RemoteModule

from tests.pairs.common import altered, numbers, pause, wait
from tests.pairs.truth_log import labelled

CALLS = 16
LABELS = [f"forward {n}" for n in range(CALLS)]


def look(x: torch.Tensor, shift: int, key: str) -> torch.Tensor:
    pause()
    return x + shift


class Head(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor, shift: int, key: str) -> torch.Tensor:
        pause()
        return rpc.rpc_sync("worker3", look, args=(x * self.factor + 1, shift, key)) + 1


def work() -> None:
    heads = [RemoteModule(f"worker{n}/cpu", Head, args=(float(n + 1),)) for n in (1, 2)]

    def start(n: int) -> Any:
        made = altered(f"forward {n}", None, look, (numbers(n), 3, f"batch {n}"))
        if made is None:
            return None
        function, args = made
        with labelled(f"forward {n}"):
            if function is not None:
                return rpc.rpc_async(f"worker{1 + n % 2}", function, args=args)
            return heads[n % 2].forward_async(*args)

    wait([start(n) for n in range(CALLS)])
