"""D01: a forward chain over two workers, a Python function and an operator, then backward.

All numbers are eighths and their products, so that sums have the same bits in any order (README.md says why).
"""

from __future__ import annotations

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 2


def scale(x: torch.Tensor, weight: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
    return torch.clamp(x * weight, -1, 1) * gain


def eighths(*shape: int) -> torch.Tensor:
    return (torch.randint(-10, 11, shape) / 8).requires_grad_()


def run(rank: int) -> None:
    with common.worker(rank, WORLD):
        if rank == 0:
            drive()


def drive() -> None:
    x, weight = eighths(3, 4), eighths(4)
    with common.context() as context_id:
        hidden = rpc.rpc_sync("worker1", scale, args=(x, weight), kwargs={"gain": 2.0})
        common.edges(context_id, note="after the Python call")
        y = rpc.rpc_sync("worker1", torch.add, args=(hidden, x))
        loss = (y * y).sum()
        common.backward(context_id, [loss])
        grads = common.gradients(context_id, x=x, weight=weight)
    local_x, local_weight = (leaf.detach().clone().requires_grad_() for leaf in (x, weight))
    local_y = torch.add(scale(local_x, local_weight, gain=2.0), local_x)
    (local_y * local_y).sum().backward()
    common.same_as_local("x", grads["x"], local_x.grad)
    common.same_as_local("weight", grads["weight"], local_weight.grad)
    common.expect(
        WORLD,
        FORWARD_AUTOGRAD_REQ=2,
        FORWARD_AUTOGRAD_RESP=2,
        BACKWARD_AUTOGRAD_REQ=4,
        BACKWARD_AUTOGRAD_RESP=4,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=2,
        CLEANUP_AUTOGRAD_CONTEXT_RESP=2,
    )


if __name__ == "__main__":
    common.launch(WORLD)
