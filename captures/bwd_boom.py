"""D08: a chain 0 → 2 → 1 whose backward raises on worker1; the error travels back 1 → 2 → 0."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

import common

WORLD = 3
TEXT = "gradient exploded on purpose"


class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        common.truth(
            "raise",
            node_id=rpc.get_worker_info().id,
            text=TEXT,
            **common.described("grad", grad),
        )
        raise ValueError(TEXT)


def explode(x: torch.Tensor) -> torch.Tensor:
    return Boom.apply(x)


def relay(x: torch.Tensor) -> torch.Tensor:
    out = rpc.rpc_sync("worker1", explode, args=(x + 1,)) * 3
    common.edges(dist_autograd._current_context()._context_id(), note="in the middle")
    return out


def run(rank: int) -> None:
    with common.worker(rank, WORLD):
        if rank == 0:
            drive()


def drive() -> None:
    x = torch.ones(3, requires_grad=True)
    with common.context() as context_id:
        y = rpc.rpc_sync("worker2", relay, args=(x,))
        try:
            common.backward(context_id, [y.sum()])
        except RuntimeError as error:
            common.truth(
                "cascade",
                root="worker1",
                path=["worker1", "worker2", "worker0"],
                error=common.error_of(error),
            )
        common.gradients(context_id, x=x)
    common.expect(
        WORLD,
        FORWARD_AUTOGRAD_REQ=2,
        FORWARD_AUTOGRAD_RESP=2,
        BACKWARD_AUTOGRAD_REQ=2,
        EXCEPTION=2,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=4,
        CLEANUP_AUTOGRAD_CONTEXT_RESP=4,
    )


if __name__ == "__main__":
    common.launch(WORLD)
