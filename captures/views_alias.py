"""D05: which bytes travel for a view, and which tensors share a storage on the other side."""

from __future__ import annotations

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 2


def echo(name: str, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return xs


def run(rank: int) -> None:
    with common.worker(rank, WORLD):
        if rank == 0:
            drive()


def drive() -> None:
    big = torch.arange(20000.0).reshape(
        200, 100
    )  # above the size from which a view of less than half is copied
    small = torch.arange(24.0).reshape(4, 6)
    cases: list[tuple[str, tuple[torch.Tensor, ...]]] = [
        ("row of a big one", (big[7],)),
        ("60 % slice", (big[80:],)),
        ("tail slice", (big[190:],)),
        ("column of a big one", (big[:, 3],)),
        ("row of a small one", (small[1],)),
        ("tail of a small one", (small[3:],)),
        ("expand", (torch.tensor([5.0]).expand(3, 4),)),
        ("transpose", (small.t(),)),
        ("every other", (torch.arange(10)[::2],)),
        ("shared pair", (small[:2], small[2:])),
        ("base and view", (small, small[0])),
        ("same object twice", (small, small)),
        ("two rows of a big one", (big[1], big[2])),
        ("overlapping", (torch.arange(8.0).as_strided((3, 4), (2, 1)),)),
    ]
    for name, tensors in cases:
        common.truth("case", name=name)
        rpc.rpc_sync("worker1", echo, args=(name, *tensors))
    common.expect(WORLD, PYTHON_CALL=len(cases), PYTHON_RET=len(cases))


if __name__ == "__main__":
    common.launch(WORLD)
