"""D06: four threads hold autograd contexts at once; some calls carry no gradient one way or at all."""

from __future__ import annotations

import threading

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

import common

WORLD = 3
THREADS = 4

owned = torch.full((2,), 3.0, requires_grad=True)
"""A weight that lives on its worker: the answer needs a gradient although the request has none."""


def times(x: torch.Tensor, factor: int) -> torch.Tensor:
    return x * factor


def owner_weight(x: torch.Tensor) -> torch.Tensor:
    return x * owned


def owner_gradient(context_id: int) -> torch.Tensor | None:
    common.edges(context_id, note="at the owner")
    return common.gradients(context_id, owned=owned)["owned"]


def run(rank: int) -> None:
    with common.worker(rank, WORLD, common.backend_options(threads=8)):
        if rank == 0:
            drive()


def drive() -> None:
    barrier = threading.Barrier(THREADS, timeout=common.RPC_SECONDS)
    crowd = [
        threading.Thread(target=member, args=(k, barrier), name=f"member{k}") for k in range(1, THREADS + 1)
    ]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    common.expect(
        WORLD,
        FORWARD_AUTOGRAD_REQ=16,  # per member two calls and one without gradients, for two members two more
        FORWARD_AUTOGRAD_RESP=6,  # only answers that need a gradient
        PYTHON_RET=10,
        BACKWARD_AUTOGRAD_REQ=10,  # per member there and back, for two members to the owner of the weight
        BACKWARD_AUTOGRAD_RESP=10,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=18,  # to both, once per empty context; back from those in the graph
        CLEANUP_AUTOGRAD_CONTEXT_RESP=18,
    )


def member(k: int, barrier: threading.Barrier) -> None:
    """Gradients of x: 2, 4, 6 and 8 for k = 1 to 4."""
    with common.context(note=f"member {k}") as context_id:
        barrier.wait()
        x = torch.ones(2, requires_grad=True)
        out = rpc.rpc_sync("worker1", times, args=(x, 2 * k))
        rpc.rpc_sync("worker2", times, args=(torch.ones(2), k))  # no gradient either way
        if k % 2 == 0:
            out = out + rpc.rpc_sync(
                "worker2", owner_weight, args=(torch.ones(2),)
            )  # only the answer has one
        barrier.wait()
        common.backward(context_id, [out.sum()])
        common.gradients(context_id, x=x)
        if k % 2 == 0:
            rpc.rpc_sync("worker2", owner_gradient, args=(context_id,))
        barrier.wait()
    with common.context(note=f"member {k}, nothing with gradients") as context_id:
        rpc.rpc_sync(f"worker{1 + k % 2}", times, args=(torch.ones(2), k))
        common.truth("none", context_id=context_id, count=len(dist_autograd.get_gradients(context_id)))


if __name__ == "__main__":
    common.launch(WORLD)
