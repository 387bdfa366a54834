"""D10: a device map from worker0 to one peer only; the other peer's envelopes show an empty one.

`devmap_cpu.py refused`: a map that names an unknown worker; `devmap_cpu.py refused_cuda`: one to a device
that the peer lacks. Both are refused only when the group is formed, so that the captures hold a rendezvous
and no call at all. Maps that are refused when they are set never reach a wire: the truth of `refused` has
them.
"""

from __future__ import annotations

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 3


def half(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5


def run(rank: int, variant: str = "accepted") -> None:
    if variant != "accepted":
        refused(rank, variant)
        return
    maps = {0: {"worker1": {"cpu": "cpu"}}, 1: {}, 2: {"worker0": {"cpu": "cpu"}}}[rank]
    common.truth("device-maps", maps=maps)
    with common.worker(rank, WORLD, common.backend_options(maps=maps)):
        if rank == 0:
            drive()


def drive() -> None:
    for peer in ("worker1", "worker2"):
        x = torch.arange(3.0, requires_grad=True)
        with common.context(note=peer) as context_id:
            y = rpc.rpc_sync(peer, half, args=(x,))
            z = rpc.rpc_sync(peer, torch.mul, args=(y, 2.0))
            common.backward(context_id, [z.sum()])
            common.gradients(context_id, x=x)
        rpc.rpc_sync(peer, half, args=(torch.ones(2),))
    common.expect(
        WORLD,
        PYTHON_CALL=2,
        PYTHON_RET=2,
        FORWARD_AUTOGRAD_REQ=4,
        FORWARD_AUTOGRAD_RESP=4,
        BACKWARD_AUTOGRAD_REQ=8,
        BACKWARD_AUTOGRAD_RESP=8,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=4,
        CLEANUP_AUTOGRAD_CONTEXT_RESP=4,
    )


BAD_MAPS = {"refused": {"nobody": {"cpu": "cpu"}}, "refused_cuda": {"worker1": {"cpu": "cuda:0"}}}


def refused(rank: int, variant: str) -> None:
    if rank == 0 and variant == "refused":
        for note, mapping in [("to an index", {"cpu": 0}), ("two to one", {"cpu": "cpu", "cuda:0": "cpu"})]:
            try:
                common.backend_options().set_device_map("worker1", mapping)
            except Exception as error:
                common.truth("refused", when="set", note=note, error=common.error_of(error))
            else:
                common.truth("accepted", when="set", note=note)
    maps = BAD_MAPS[variant] if rank == 0 else None
    try:
        with common.worker(rank, WORLD, common.backend_options(maps=maps)):
            common.truth("accepted", when="init", note=variant)
    except Exception as error:
        common.truth("refused", when="init", note=variant, error=common.error_of(error))


if __name__ == "__main__":
    common.launch(WORLD)
