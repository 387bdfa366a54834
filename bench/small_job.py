"""The job behind the bench capture: a training loop of many small messages between two workers.

Out: one line `TRUTH {…}` with what the driver counted. Run by make.py from the neutral path, beside the
modules of captures/ that it imports.
"""

from __future__ import annotations

import common
import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

WORLD = 2
RECORD_CALLS = False
SECONDS = 300
FLOATS = 64


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def run(rank: int, iterations: str, seed: str) -> None:
    with common.worker(rank, WORLD):
        if rank == 0:
            torch.manual_seed(int(seed))
            drive(int(iterations))


def drive(iterations: int) -> None:
    """Each time five requests and five answers: forward, and backward and cleanup both ways."""
    gradients = 0
    for _ in range(iterations):
        x = torch.randn(FLOATS, requires_grad=True)
        with dist_autograd.context() as context_id:
            y = rpc.rpc_sync("worker1", double, args=(x,))
            dist_autograd.backward(context_id, [y.sum()])
            gradients += int(
                torch.equal(dist_autograd.get_gradients(context_id)[x], torch.full((FLOATS,), 2.0))
            )
    common.truth("counts", iterations=iterations, gradients=gradients, tensor_bytes=4 * FLOATS)
    common.expect(
        WORLD,
        FORWARD_AUTOGRAD_REQ=iterations,
        FORWARD_AUTOGRAD_RESP=iterations,
        BACKWARD_AUTOGRAD_REQ=2 * iterations,
        BACKWARD_AUTOGRAD_RESP=2 * iterations,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=2 * iterations,
        CLEANUP_AUTOGRAD_CONTEXT_RESP=2 * iterations,
    )


if __name__ == "__main__":
    common.launch(WORLD, SECONDS)
