"""A group without a size: workers join and leave between the fan-outs of worker0, at its word."""

from __future__ import annotations

import time
from pathlib import Path

import torch
import torch.distributed.rpc as rpc

from tests.pairs.common import numbers, options, pause, send, wait

CALLS = 8
LABELS = [f"ask {turn} {n}" for turn in range(3) for n in range(CALLS)]
SECONDS = 30


def ask(x: torch.Tensor, shift: int, whom: str, key: float) -> torch.Tensor:
    pause()
    return rpc.rpc_sync(whom, compute, args=(x * 2 + 1, shift, key)) + 1


def ask_otherwise(x: torch.Tensor, shift: int, whom: str, key: float) -> torch.Tensor:
    return rpc.rpc_sync(whom, compute, args=(x * 2 + 1, shift, key)) - 1


def compute(x: torch.Tensor, shift: int, key: float) -> torch.Tensor:
    pause()
    return x * 3 + shift


def some(turn: int, one: str, other: str) -> None:
    started = []
    for n in range(CALLS):
        args = (numbers(100 * turn + n), 3, other, turn + n / 16)
        started.append(send(rpc.rpc_async, f"ask {turn} {n}", one, ask, args, ask_otherwise))
    wait(started)


def reach(folder: Path, sign: str) -> None:
    (folder / sign).touch()


def await_sign(folder: Path, sign: str) -> None:
    end = time.monotonic() + SECONDS
    while not (folder / sign).exists():
        if time.monotonic() > end:
            raise TimeoutError(sign)
        time.sleep(0.01)


def take_part(rank: int, folder: Path, store: str) -> None:
    if rank:
        await_sign(folder, f"join-{rank}")
    rpc.init_rpc(f"worker{rank}", rank=rank, rpc_backend_options=options(store))
    if rank:
        reach(folder, f"joined-{rank}")
        await_sign(folder, f"leave-{rank}")
        rpc.shutdown()
        reach(folder, f"left-{rank}")
        return
    for other in (1, 2):
        join(folder, other)
    some(0, "worker1", "worker2")
    join(folder, 3)
    some(1, "worker3", "worker1")
    leave(folder, 2)
    some(2, "worker1", "worker3")
    for other in (1, 3):
        leave(folder, other)
    rpc.shutdown()


def join(folder: Path, rank: int) -> None:
    reach(folder, f"join-{rank}")
    await_sign(folder, f"joined-{rank}")


def leave(folder: Path, rank: int) -> None:
    reach(folder, f"leave-{rank}")
    await_sign(folder, f"left-{rank}")
