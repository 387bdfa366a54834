"""D03: an nn.Parameter sent as an argument arrives as a leaf without an edge; a plain tensor gets one."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 2


def inspect(x: torch.Tensor) -> dict[str, Any]:
    return {
        "parameter": isinstance(x, torch.nn.Parameter),
        "leaf": x.is_leaf,
        "requires_grad": x.requires_grad,
        "grad_fn": x.grad_fn is not None,
        "out": x * 3,
    }


def run(rank: int) -> None:
    with common.worker(rank, WORLD):
        if rank == 0:
            drive()


def drive() -> None:
    parameter = torch.nn.Parameter(torch.full((2,), 2.0))
    tensor = torch.full((2,), 5.0, requires_grad=True)
    with common.context() as context_id:
        common.edges(context_id, note="before")
        first = rpc.rpc_sync("worker1", inspect, args=(parameter,))
        common.edges(context_id, note="after the call with the Parameter")
        second = rpc.rpc_sync("worker1", inspect, args=(tensor,))
        common.edges(context_id, note="after the call with the tensor")
        common.backward(context_id, [first["out"].sum() + second["out"].sum()])
        common.gradients(context_id, parameter=parameter, tensor=tensor)
    common.expect(
        WORLD,
        FORWARD_AUTOGRAD_REQ=2,
        FORWARD_AUTOGRAD_RESP=2,
        BACKWARD_AUTOGRAD_REQ=3,  # to the owner for both answers, back for the tensor only
        BACKWARD_AUTOGRAD_RESP=3,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=2,
        CLEANUP_AUTOGRAD_CONTEXT_RESP=2,
    )


if __name__ == "__main__":
    common.launch(WORLD)
