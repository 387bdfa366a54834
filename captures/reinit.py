"""Not one of the D workloads: two processes that join a group, leave it and join the next one, three times.

Ids, names and the store's address stay, listeners change; the store prefixes its keys with the number of the
group.
"""

from __future__ import annotations

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 2
ROUNDS = 3


def scale(x: torch.Tensor, by: int) -> torch.Tensor:
    return x * by


def run(rank: int) -> None:
    for group in range(ROUNDS):
        with common.worker(rank, WORLD, group=group):
            if rank == 0:
                drive(group)


def drive(group: int) -> None:
    x = torch.arange(3.0).requires_grad_()
    with common.context() as context_id:
        y = rpc.rpc_sync("worker1", scale, args=(x, group + 2))
        common.backward(context_id, [y.sum()])
        common.gradients(context_id, x=x)
    if group == ROUNDS - 1:
        common.expect(
            1 + ROUNDS * (WORLD - 1),  # the agent's own calls are made once for each group
            FORWARD_AUTOGRAD_REQ=ROUNDS,
            FORWARD_AUTOGRAD_RESP=ROUNDS,
            BACKWARD_AUTOGRAD_REQ=2 * ROUNDS,
            BACKWARD_AUTOGRAD_RESP=2 * ROUNDS,
            CLEANUP_AUTOGRAD_CONTEXT_REQ=2 * ROUNDS,
            CLEANUP_AUTOGRAD_CONTEXT_RESP=2 * ROUNDS,
        )


if __name__ == "__main__":
    common.launch(WORLD)
