"""D07: remote references made, fetched, handed on between users, used in backward; all deleted at the end."""

from __future__ import annotations

import gc
import time

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 3


def make(n: int) -> torch.Tensor:
    return torch.arange(float(n))


def square_sum(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum()


def use(handle: rpc.RRef, k: int) -> torch.Tensor:
    """A user that got a handle from another user (or from the owner) fetches the value."""
    common.truth("holds", **common.described("handle", handle))
    return handle.to_here() + k


def hand_on(handle: rpc.RRef, to: str) -> torch.Tensor:
    """From the user that got it to a third worker (which may be the owner)."""
    common.truth("holds", **common.described("handle", handle))
    return rpc.rpc_sync(to, use, args=(handle, 10))


def run(rank: int) -> None:
    with common.worker(rank, WORLD):
        if rank == 0:
            drive()
            gc.collect()
            time.sleep(1.0)  # the deletes are sent and acknowledged in the background
        common.truth(
            "handles-left",
            info={
                key: int(value)
                for key, value in rpc._rref_context_get_debug_info().items()
                if str(value).isdigit()
            },
        )
    gc.collect()


def drive() -> None:
    handle = rpc.remote("worker1", make, args=(4,))
    common.truth("fetched", **common.described("value", handle.to_here()))
    rpc.rpc_sync("worker2", use, args=(handle, 1))  # user to user: worker2 asks the owner for its fork
    rpc.rpc_sync("worker2", hand_on, args=(handle, "worker1"))  # user to user to owner
    rpc.rpc_sync("worker1", use, args=(handle, 2))  # user to owner
    operator = rpc.remote("worker1", torch.add, args=(torch.ones(2), 41.0))
    common.truth("fetched", **common.described("value", operator.to_here()))
    rpc.rpc_sync("worker2", use, args=(operator, 1))
    own = rpc.RRef(torch.full((2,), 9.0))
    common.truth("owns", **common.described("handle", own))
    rpc.rpc_sync("worker2", use, args=(own, 1))  # owner to user
    rpc.rpc_sync("worker2", hand_on, args=(own, "worker1"))
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with common.context() as context_id:
        loss = rpc.remote("worker1", square_sum, args=(x,))
        common.truth("rref-backward", context_id=context_id, **common.described("handle", loss))
        loss.backward(context_id)
        common.gradients(context_id, x=x)
    common.expect(
        WORLD,
        PYTHON_CALL=8,  # six by the driver, two by hand_on
        PYTHON_RET=8,
        PYTHON_REMOTE_CALL=1,
        SCRIPT_REMOTE_CALL=1,
        FORWARD_AUTOGRAD_REQ=1,  # around the third remote()
        REMOTE_RET=3,
        PYTHON_RREF_FETCH_CALL=2,
        PYTHON_RREF_FETCH_RET=2,
        SCRIPT_RREF_FETCH_CALL=4,  # an operator's result and a tensor have a TorchScript type
        SCRIPT_RREF_FETCH_RET=4,
        RREF_FORK_REQUEST=4,  # by each user that got its handle from another user
        RREF_CHILD_ACCEPT=6,  # those, and twice a user handed the handle to its owner
        RREF_USER_DELETE=9,
        RREF_ACK=19,
        RREF_BACKWARD_REQ=1,
        RREF_BACKWARD_RESP=1,
        BACKWARD_AUTOGRAD_REQ=1,
        BACKWARD_AUTOGRAD_RESP=1,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=1,
        CLEANUP_AUTOGRAD_CONTEXT_RESP=1,
    )


if __name__ == "__main__":
    common.launch(WORLD)
