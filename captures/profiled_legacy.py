"""D02: the legacy profiler wraps calls in RUN_WITH_PROFILING, also around autograd; Kineto wraps nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import torch.distributed.rpc as rpc
import torch.profiler
from torch.autograd import profiler_legacy

import common

WORLD = 2


def clip(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).clamp_min(0.5)


@torch.jit.script
def plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def run(rank: int) -> None:
    with common.worker(rank, WORLD):
        if rank == 0:
            drive()


def drive() -> None:
    x, y = torch.arange(4.0), torch.full((4,), 0.5)
    with profiler_legacy.profile() as plain:
        rpc.rpc_sync("worker1", clip, args=(x, y))
        rpc.rpc_sync("worker1", torch.add, args=(x, y))
        rpc.rpc_sync("worker1", plus_one, args=(x,))
        handle = rpc.remote("worker1", clip, args=(x, y))
        common.truth("fetched", **common.described("value", handle.to_here()))
    del handle
    events("plain", plain)
    with (
        profiler_legacy.profile(record_shapes=True, profile_memory=True) as nested,
        common.context() as context_id,
    ):
        leaf = x.clone().requires_grad_()
        out = rpc.rpc_sync("worker1", clip, args=(leaf, y))
        out = rpc.rpc_sync("worker1", torch.mul, args=(out, out))
        common.backward(context_id, [out.sum()])
        common.gradients(context_id, leaf=leaf)
    events("over autograd", nested)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as kineto:
        rpc.rpc_sync("worker1", clip, args=(x, y))
    events("kineto", kineto)
    common.expect(
        WORLD,
        RUN_WITH_PROFILING_REQ=6,  # four plain calls, two in the context
        RUN_WITH_PROFILING_RESP=6,
        PYTHON_RREF_FETCH_CALL=1,
        PYTHON_RREF_FETCH_RET=1,
        RREF_USER_DELETE=1,
        RREF_ACK=1,
        BACKWARD_AUTOGRAD_REQ=4,  # for each of the two calls one each way
        BACKWARD_AUTOGRAD_RESP=4,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=2,
        CLEANUP_AUTOGRAD_CONTEXT_RESP=2,
        PYTHON_CALL=1,  # under the Kineto profiler
        PYTHON_RET=1,
    )


def events(arm: str, profile: Any) -> None:
    """What the user sees: event names, their node, how often; remote ones carry the key of their call."""
    listed = profile.events() if arm == "kineto" else profile.function_events
    counts = Counter((event.name, event.node_id) for event in listed)
    rows = [{"name": name, "node_id": node, "count": count} for (name, node), count in counts.items()]
    common.truth("profile", arm=arm, events=rows)


if __name__ == "__main__":
    common.launch(WORLD)
