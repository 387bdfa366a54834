"""Not one of the D workloads: jobs that do what `decode` warns of, and the same jobs done right: `faults.py VARIANT`.

    leaks           a context that is never left, an RRef that is never dropped, gradients lost on the way
    tidy            the same calls without any of that
    unused_result   a result that the backward pass does not begin with: the pass hangs
    used_result     the same with both results used
    second_pass     a forward and a backward pass, and in the same context another: the second one hangs
    split           activations are sent without a context, and their gradient comes back as the answer
    dies            a worker ends while it serves a call
    unfit           a result on a device that no map covers, an argument that does something when it is loaded
    fit             the same result on the CPU, plain arguments, and a call of what such an argument could name

A `fault` line of the truth names a finding that decode must show; a run without one has none.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

import common

WORLD = 2
SETTLE_SECONDS = 0.5
"""A run goes on for so long after a fault: many times longer than its calls take."""

_over = threading.Event()
_kept: list[Any] = []


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def both_halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, x / 2


def norm(x: torch.Tensor) -> float:
    """Returns no tensor: nothing leads back to the argument."""
    return float((x * x).sum())


def make() -> torch.Tensor:
    return torch.full((2,), 3.0)


def nothing() -> None:
    pass


def on_meta() -> torch.Tensor:
    """On a device without memory, which no device map may name."""
    return torch.empty(2, device="meta")


def on_cpu() -> torch.Tensor:
    return torch.full((2,), 4.0)


class Lists:
    """Whoever loads it lists a folder."""

    def __reduce__(self) -> tuple[Callable[[], Iterator[Any]], tuple[()]]:
        return os.scandir, ()


def take(*values: Any) -> int:
    return len(values)


def leave() -> None:
    """End without a word to the others, as in a crash."""
    common.truth("left")
    sys.stdout.flush()
    os._exit(0)


def over() -> None:
    _over.set()


def fault(code: str, **fields: Any) -> None:
    common.truth("fault", code=code, **fields)


def run(rank: int, variant: str) -> None:
    if variant in ("tidy", "used_result", "split", "unfit", "fit"):
        with common.worker(rank, WORLD):
            if rank == 0:
                DRIVERS[variant]()
        return
    name = common.WORLD_NAME.format(rank)
    rpc.init_rpc(name, rank=rank, world_size=WORLD, rpc_backend_options=common.backend_options())
    info = rpc.get_worker_info()
    common.truth("worker", name=info.name, id=info.id, world_size=WORLD, torch=torch.__version__, group=0)
    if rank == 0:
        DRIVERS[variant]()
        if variant != "dies":
            rpc.rpc_sync("worker1", over)
    else:
        _over.wait(common.RPC_SECONDS)
        time.sleep(SETTLE_SECONDS)
    leave()


def leaks() -> None:
    x = torch.full((2,), 1.5, requires_grad=True)
    rpc.rpc_sync("worker1", norm, args=(x,))
    fault("lost-edge", caller="worker0", callee="worker1", function="faults.norm", context_id=None)
    with common.context(note="zeros") as context_id:
        first, _ = rpc.rpc_sync("worker1", both_halves, args=(x,))
        common.backward(context_id, [first.sum()])
    fault("zero-gradient", caller="worker0", callee="worker1", context_id=context_id)
    with common.context(note="dead end") as context_id:
        rpc.rpc_sync("worker1", norm, args=(x,))
    fault("lost-edge", caller="worker0", callee="worker1", function="faults.norm", context_id=context_id)
    never_left = dist_autograd.context()
    context_id = never_left.__enter__()
    rpc.rpc_sync("worker1", double, args=(x,))
    fault("leaked-context", creator="worker0", left="worker1", context_id=context_id)
    handle = rpc.remote("worker1", make)
    handle.to_here()
    _kept.extend([never_left, handle])
    fault("leaked-rref", owner="worker1", holder="worker0", rref=common.described("value", handle)["value"])
    time.sleep(SETTLE_SECONDS)


def tidy() -> None:
    x = torch.full((2,), 1.5, requires_grad=True)
    rpc.rpc_sync("worker1", norm, args=(x.detach(),))
    with common.context(note="no zeros") as context_id:
        first, second = rpc.rpc_sync("worker1", both_halves, args=(x,))
        common.backward(context_id, [first.sum() + second.sum()])
    with common.context(note="no edge"):
        rpc.rpc_sync("worker1", norm, args=(x.detach(),))
    with common.context(note="no backward"):
        rpc.rpc_sync("worker1", double, args=(x,))
    handle = rpc.remote("worker1", make)
    handle.to_here()
    del handle
    gc.collect()
    time.sleep(SETTLE_SECONDS)


def unused_result() -> None:
    x = torch.full((2,), 1.5, requires_grad=True)
    with common.context() as context_id:
        used = rpc.rpc_sync("worker1", double, args=(x,))
        rpc.rpc_sync("worker1", double, args=(x,))
        common.edges(context_id, note="before backward")
        thread = threading.Thread(target=common.backward, args=(context_id, [used.sum()]), daemon=True)
        thread.start()
        thread.join(SETTLE_SECONDS)
        common.truth("hangs", context_id=context_id, hangs=thread.is_alive())
        fault("missing-gradient", context_id=context_id, function="faults.double", call=1)
        rpc.rpc_sync("worker1", over)
        time.sleep(2 * SETTLE_SECONDS)
        leave()


def second_pass() -> None:
    x = torch.full((2,), 1.5, requires_grad=True)
    with common.context() as context_id:
        common.backward(context_id, [rpc.rpc_sync("worker1", double, args=(x,)).sum()])
        later = rpc.rpc_sync("worker1", double, args=(x,)).sum()
        common.edges(context_id, note="before the second pass")
        thread = threading.Thread(target=common.backward, args=(context_id, [later]), daemon=True)
        thread.start()
        thread.join(SETTLE_SECONDS)
        common.truth("hangs", context_id=context_id, hangs=thread.is_alive())
        fault("missing-gradient", context_id=context_id, function="faults.double", call=0)
        rpc.rpc_sync("worker1", over)
        time.sleep(2 * SETTLE_SECONDS)
        leave()


def used_result() -> None:
    x = torch.full((2,), 1.5, requires_grad=True)
    with common.context() as context_id:
        results = [rpc.rpc_sync("worker1", double, args=(x,)) for _ in range(2)]
        common.backward(context_id, [results[0].sum() + results[1].sum()])
        common.gradients(context_id, x=x)
        rpc.rpc_sync("worker1", double, args=(x,))  # after the pass: nothing is due for it


def finish_step(activations: torch.Tensor) -> torch.Tensor:
    """The second half of a model and its backward pass; returns the gradient for the first half."""
    activations = activations.detach().requires_grad_()
    (activations * activations).sum().backward()
    assert activations.grad is not None
    return activations.grad


def split() -> None:
    weight = torch.full((2, 3), 0.5, requires_grad=True)
    for _ in range(3):
        before = weight.detach().clone()
        activations = torch.ones(4, 2) @ weight
        activations.backward(rpc.rpc_sync("worker1", finish_step, args=(activations,)))
        with torch.no_grad():
            weight -= 0.01 * weight.grad
        weight.grad = None
        common.truth("trained", changed=not torch.equal(before, weight))


def dies() -> None:
    rpc.rpc_sync("worker1", nothing)
    try:
        rpc.rpc_sync("worker1", leave)
    except RuntimeError as error:
        common.truth("died", error=common.error_of(error))
    fault("unanswered-request", caller="worker0", callee="worker1", function="faults.leave")
    time.sleep(SETTLE_SECONDS)


def unfit() -> None:
    call = {"caller": "worker0", "callee": "worker1", "function": "faults.on_meta"}
    with contextlib.suppress(RuntimeError):
        rpc.rpc_sync("worker1", on_meta)
    fault("device-map-missing", device="meta", **call)
    fault("error-response", **call)
    rpc.rpc_sync("worker1", take, args=(Lists(), 1))
    fault("unsafe-pickle", callee="worker1", name="posix.scandir")


def fit() -> None:
    rpc.rpc_sync("worker1", on_cpu)
    rpc.rpc_sync("worker1", take, args=({"a": (1, [2.5, None])}, b"bytes", {1, 2}))
    rpc.rpc_sync("worker1", os.getpid)


DRIVERS = {
    "leaks": leaks,
    "tidy": tidy,
    "unused_result": unused_result,
    "used_result": used_result,
    "second_pass": second_pass,
    "split": split,
    "dies": dies,
    "unfit": unfit,
    "fit": fit,
}


if __name__ == "__main__":
    common.launch(WORLD)
