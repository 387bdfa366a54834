"""D11: the same calls over four choices of transport and channel; not all leave the bytes on the wire.

`transport_matrix.py MODE`, one of MODES.
"""

from __future__ import annotations

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 2

MODES = {  # transports and channels (empty: PyTorch's choice); are message bodies on the wire, are tensors
    "uv_basic": (["uv"], ["basic"], True, True),
    "uv_mpt": (["uv"], ["mpt_uv"], True, True),
    "uv_only": (["uv"], [], True, False),
    "default": ([], [], False, False),
}


def weigh(text: str, big: torch.Tensor, small: torch.Tensor) -> torch.Tensor:
    return big * small.sum()


def run(rank: int, mode: str) -> None:
    transports, channels, bodies, tensors = MODES[mode]
    with common.worker(rank, WORLD, common.backend_options(transports, channels)):
        if rank == 0:
            common.truth("visible", mode=mode, bodies_visible=bodies, tensors_visible=tensors)
            drive()


def drive() -> None:
    big, small = torch.arange(4000.0) + 0.5, torch.tensor([1.25, -2.5])
    rpc.rpc_sync("worker1", weigh, args=("a string that is easy to find", big, small))
    rpc.rpc_sync("worker1", torch.add, args=(small, 1))
    with common.context() as context_id:
        x = torch.ones(5, requires_grad=True)
        y = rpc.rpc_sync("worker1", torch.mul, args=(x, torch.arange(5.0)))
        common.backward(context_id, [y.sum()])
        common.gradients(context_id, x=x)
    common.expect(  # what was sent, whether or not it can be seen
        WORLD,
        PYTHON_CALL=1,
        PYTHON_RET=1,
        SCRIPT_CALL=1,
        SCRIPT_RET=1,
        FORWARD_AUTOGRAD_REQ=1,
        FORWARD_AUTOGRAD_RESP=1,
        BACKWARD_AUTOGRAD_REQ=2,
        BACKWARD_AUTOGRAD_RESP=2,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=2,
        CLEANUP_AUTOGRAD_CONTEXT_RESP=2,
    )


if __name__ == "__main__":
    common.launch(WORLD)
