"""Not one of the D: random numbers of the workers themselves, a mask in a backward pass and draws.

Every worker is seeded by `common.work`, with 1000 and its rank, and draws nothing before it serves. Masks are
made with `rand`, whose numbers are the same everywhere; see "What the jobs may compute".
"""

from __future__ import annotations

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 3


def mask(x: torch.Tensor, keep: float) -> torch.Tensor:
    """Dropout without its scaling."""
    return x * (torch.rand(x.shape) < keep)


def draw(n: int) -> torch.Tensor:
    return torch.rand(n)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def run(rank: int) -> None:
    with common.worker(rank, WORLD):
        if rank == 0:
            drive()


def drive() -> None:
    x = torch.arange(1.0, 33.0, requires_grad=True)
    rpc.rpc_sync("worker1", double, args=(torch.ones(3),))
    with common.context() as context_id:
        kept = rpc.rpc_sync("worker1", mask, args=(x, 0.5))
        common.backward(context_id, [kept.sum()])
        common.gradients(context_id, x=x)
    for _ in range(2):
        rpc.rpc_sync("worker2", draw, args=(4,))
    rpc.rpc_sync("worker2", double, args=(torch.ones(2),))
    common.expect(
        WORLD,
        PYTHON_CALL=4,
        PYTHON_RET=4,
        FORWARD_AUTOGRAD_REQ=1,
        FORWARD_AUTOGRAD_RESP=1,
        BACKWARD_AUTOGRAD_REQ=2,
        BACKWARD_AUTOGRAD_RESP=2,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=2,
        CLEANUP_AUTOGRAD_CONTEXT_RESP=2,
    )


if __name__ == "__main__":
    common.launch(WORLD)
