"""Six threads call methods of objects through their RRefs; half of the methods call another object's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed.rpc as rpc

from tests.pairs.common import altered, numbers, pause
from tests.pairs.truth_log import labelled

CALLS, THREADS = 24, 6
LABELS = [f"invoke {n}" for n in range(CALLS)]


class Stage:
    def invoke(self, x: torch.Tensor, shift: int, peer: Any) -> torch.Tensor:
        pause()
        if shift % 2:
            return x * 2
        return peer.rpc_sync().look(x * 2 + 1) + 1

    def invoke_otherwise(self, x: torch.Tensor, shift: int, peer: Any) -> torch.Tensor:
        return self.invoke(x, shift, peer)

    def look(self, x: torch.Tensor) -> torch.Tensor:
        pause()
        return x + 1


def work() -> None:
    stages = [rpc.remote(f"worker{n}", Stage) for n in (1, 2, 3)]
    for n, stage in enumerate(stages):
        stage.rpc_sync().look(numbers(500 + n))  # asks for the type of the object, once for all

    def one(n: int) -> None:
        pause()
        stage, peer = stages[n % 3], stages[(n + 1) % 3]
        args = (numbers(n), 2 * (n % 4) + (n // 4) % 2, peer)
        made = altered(f"invoke {n}", "invoke", "invoke_otherwise", args)
        if made is not None:
            with labelled(f"invoke {n}"):
                getattr(stage.rpc_sync(), made[0])(*made[1])

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, range(CALLS)))
