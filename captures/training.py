"""Not one of the D: a small training job with switches, for pairs of runs that differ in exactly one thing.

worker0 trains, worker1 computes, worker2 owns the weight. An iteration is a forward call to worker1, which asks
worker2 for the linear layer and drops out; an operator on the answer; backward; a step of the optimizer at
worker2; then reports: three overlapping calls to worker1, and three to worker2 one after the other. Everything
is seeded, on one thread, adds no more than two gradients, and computes element by element with every sum in an order
of its own, so that two runs of it have the same bits, on any processor (README.md says why).

    training.py            the job as it is
    training.py SWITCH     one thing changed: a key of SITES

Before each place where a switch can bite, the caller prints a `site` in every run, whether it is changed or not:
which call is the place, and whether its request or its answer is what changes.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

import common

WORLD = 3
ITERATIONS = 3
ROWS, INNER, OUTER = 4, 16, 8
REPORT_SECONDS = 0.1
"""How long a report takes that overlaps with others: long enough for all of them to be sent first."""


class Site(NamedTuple):
    """Where a switch changes something first."""

    place: str
    """Of the calls below, as `at` has it."""
    step: int
    part: str
    """`request`: what is sent, or whether it is sent; `answer`: what comes back for an equal request."""


SITES = {
    "again": None,
    "function": Site("forward", 0, "answer"),
    "learning_rate": Site("optimizer", 0, "request"),
    "dropout_seed": Site("forward", 1, "answer"),
    "dtype": Site("mean", 1, "request"),
    "summation": Site("linear", 0, "answer"),
    "order_async": Site("mean", 1, "request"),
    "order_async_alike": Site("quantile", 1, "request"),
    "order_sync": Site("norm", 1, "request"),
    "order_sync_alike": Site("row", 1, "request"),
    "call_dropped": Site("norm", 1, "request"),
    "call_dropped_alike": Site("row", 1, "request"),
    "call_added": Site("after rows", 1, "request"),
    "call_repeated": Site("after norm", 1, "request"),
    "extra_iteration": Site("forward", ITERATIONS, "request"),
    "renamed": Site("weight", 0, "request"),
    "device_map": Site("forward", 0, "request"),
    "error": Site("norm", 1, "answer"),
    "error_nested": Site("linear", 1, "answer"),
}
"""The switches, and where each bites first; `again` changes nothing."""

_switch = ""
_activate: Callable[[torch.Tensor], torch.Tensor] = torch.nn.functional.hardtanh


def names_of(switch: str) -> list[str]:
    return ["worker0", "worker1", "worker_ps" if switch == "renamed" else "worker2"]


def at(place: str, step: int) -> None:
    """Print of the next call of this worker what switches change there."""
    for switch, site in SITES.items():
        if site is not None and (site.place, site.step) == (place, step):
            truth = {"switch": switch, "changed": switch == _switch, "part": site.part}
            common.truth("site", call=common.next_call(), step=step, **truth)


# --- worker2: owns the weight ---------------------------------------------------------------------------


_weight: list[torch.Tensor] = []


def make_weight() -> torch.Tensor:
    generator = torch.Generator().manual_seed(9)
    _weight.append((torch.rand(INNER, OUTER, generator=generator) - 0.5).requires_grad_())
    return _weight[0]


def linear(weight: rpc.RRef, x: torch.Tensor, step: int) -> torch.Tensor:
    if _switch == "error_nested" and step == 1:
        raise ArithmeticError("the layer of step 1 can't be had")
    if _switch == "summation":
        say_how_far(x.detach(), weight.local_value().detach())
    return Product.apply(x, weight.local_value(), _switch == "summation")


class Product(torch.autograd.Function):
    """x @ weight, with the products added from the first one on, or from the last one on."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, from_the_last: bool) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, reversed(range(INNER)) if from_the_last else range(INNER))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight = ctx.saved_tensors
        return product(grad, weight.t(), range(OUTER)), product(x.t(), grad, range(ROWS)), None


def product(a: torch.Tensor, b: torch.Tensor, order: Iterable[int]) -> torch.Tensor:
    """a @ b, with its products added in that order."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for k in order:
        total = total + a[:, k : k + 1] * b[k]
    return total


def say_how_far(x: torch.Tensor, weight: torch.Tensor) -> None:
    """How far the sums from the last product on are from those from the first one on."""
    straight, back = product(x, weight, range(INNER)), product(x, weight, reversed(range(INNER)))
    steps = (ordered(back) - ordered(straight)).abs()
    error = (back - straight).abs()
    common.truth(
        "summation", differing=int((steps > 0).sum()), max_ulp=int(steps.max()), max_abs=float(error.max())
    )


def ordered(x: torch.Tensor) -> torch.Tensor:
    """The bits of floats as integers of the same order: neighbours are one apart."""
    bits = x.contiguous().view(torch.int32).to(torch.int64)
    return torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def norm_of(step: int) -> float:
    if _switch == "error" and step == 1:
        raise ArithmeticError("the norm of step 1 can't be had")
    """The largest element: a norm without a sum."""
    return float(_weight[0].detach().abs().max())


def row_of(index: int) -> torch.Tensor:
    return _weight[0].detach()[index]


# --- worker1: computes -----------------------------------------------------------------------------------


def forward(x: torch.Tensor, weight: rpc.RRef, step: int, owner: str) -> torch.Tensor:
    at("linear", step)
    hidden = rpc.rpc_sync(owner, linear, args=(weight, x, step))
    seed = 100 + step + (1000 if _switch == "dropout_seed" and step == 1 else 0)
    return _activate(drop_out(hidden, seed))


def drop_out(hidden: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return hidden * (torch.rand(hidden.shape, generator=generator) < 0.5) * 2


def mean_of(out: torch.Tensor) -> torch.Tensor:
    time.sleep(REPORT_SECONDS)
    ones = torch.ones(1, out.numel(), dtype=out.dtype)
    return product(ones, out.reshape(-1, 1), range(out.numel())).reshape(()) / out.numel()


def quantile_of(out: torch.Tensor, q: float) -> torch.Tensor:
    time.sleep(REPORT_SECONDS)
    return torch.quantile(out, q, interpolation="lower")


# --- worker0: trains -------------------------------------------------------------------------------------


def run(rank: int, switch: str = "") -> None:
    global _switch, _activate
    _switch = switch
    if switch == "function" and rank == 1:  # the same function has another body there, and nowhere else
        _activate = torch.relu
    names = names_of(switch)
    maps = {"worker1": {"cpu": "cpu"}} if switch == "device_map" and rank == 0 else None
    common.truth("device-maps", maps=maps or {})
    with common.worker(rank, WORLD, common.backend_options(maps=maps), name=names[rank]):
        if rank == 0:
            train(names[2])
            expect()


def train(owner: str) -> None:
    at("weight", 0)
    weight = rpc.remote(owner, make_weight)
    at("optimizer", 0)
    lr = 0.25 if _switch == "learning_rate" else 0.5
    optimizer = DistributedOptimizer(torch.optim.SGD, [weight], lr=lr)
    for step in range(ITERATIONS + (_switch == "extra_iteration")):
        try:
            out = iterate(weight, optimizer, step, owner)
        except RuntimeError as error:
            common.truth("died", step=step, error=common.error_of(error))
            continue
        report_overlapping(out, step)
        report_in_turn(owner, step)


def iterate(weight: rpc.RRef, optimizer: DistributedOptimizer, step: int, owner: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(200 + step)
    x = (torch.rand(ROWS, INNER, generator=generator) * 4 - 2).requires_grad_()
    target = torch.rand(ROWS, OUTER, generator=generator)
    with common.context(note=f"step {step}") as context_id:
        at("forward", step)
        hidden = rpc.rpc_sync("worker1", forward, args=(x, weight, step), kwargs={"owner": owner})
        out = rpc.rpc_sync("worker1", torch.mul, args=(hidden, 2.0))
        error = out - target
        loss = (error * error).mean()
        common.backward(context_id, [loss])
        common.gradients(context_id, x=x)
        optimizer.step(context_id)
    return out.detach()


def report_overlapping(out: torch.Tensor, step: int) -> None:
    """Three calls at once: their order is nobody's."""
    changed = _switch if step == 1 else ""
    given = out.double() if changed == "dtype" else out
    calls: list[tuple[str, Callable[..., torch.Tensor], tuple[object, ...]]] = [
        ("mean", mean_of, (given,)),
        ("quantile", quantile_of, (out, 0.25)),
        ("other quantile", quantile_of, (out, 0.75)),
    ]
    if changed == "order_async":
        calls[0], calls[1] = calls[1], calls[0]
    if changed == "order_async_alike":
        calls[1], calls[2] = calls[2], calls[1]
    futures = []
    for place, function, args in calls:
        at(place, step)
        futures.append(rpc.rpc_async("worker1", function, args=args))
    common.truth("overlap", step=step, done=[future.done() for future in futures])
    torch.futures.wait_all(futures)


def report_in_turn(owner: str, step: int) -> None:
    """Three calls that don't need each other, one after the other."""
    changed = _switch if step == 1 else ""
    calls: list[tuple[str, Callable[..., object], int]] = [
        ("norm", norm_of, step),
        ("after norm", norm_of, step),
        ("row", row_of, 0),
        ("other row", row_of, 1),
        ("after rows", row_of, 2),
    ]
    if changed == "order_sync":
        calls = [calls[2], calls[0], *calls[3:]]
    if changed == "order_sync_alike":
        calls = [calls[0], calls[3], calls[2]]
    left_out = {"after norm", "after rows"} - {
        {"call_repeated": "after norm", "call_added": "after rows"}.get(changed, "")
    }
    left_out |= {{"call_dropped": "norm", "call_dropped_alike": "row"}.get(changed, "")}
    for place, function, argument in calls:
        at(place, step)
        if place not in left_out:
            with contextlib.suppress(RuntimeError):
                rpc.rpc_sync(owner, function, args=(argument,))


def expect() -> None:
    """What the job above sends, by hand."""
    whole = ITERATIONS + {"extra_iteration": 1, "error_nested": -1}.get(_switch, 0)
    reports = 6 * whole + {"call_dropped": -1, "call_dropped_alike": -1}.get(_switch, 0)
    reports += {"call_added": 1, "call_repeated": 1}.get(_switch, 0)
    # of an iteration whose linear layer fails: two calls, two errors, the clean-ups, the handle that was lent
    cut = int(_switch == "error_nested")
    failed = {"error": 1, "error_nested": 2}.get(_switch, 0)
    common.expect(
        WORLD,
        PYTHON_REMOTE_CALL=1,
        REMOTE_RET=1,
        PYTHON_CALL=1 + reports,  # the optimizer is made by a call
        PYTHON_RET=1 + reports + failed - (_switch == "error"),
        FORWARD_AUTOGRAD_REQ=4 * whole + 2 * cut,  # forward, linear, mul, step
        FORWARD_AUTOGRAD_RESP=3 * whole,
        SCRIPT_RET=whole,  # of the step: nothing that needs a gradient
        BACKWARD_AUTOGRAD_REQ=6 * whole,  # there and back for mul, and for forward with linear inside
        BACKWARD_AUTOGRAD_RESP=6 * whole,
        CLEANUP_AUTOGRAD_CONTEXT_REQ=5 * whole + 2 * cut,
        CLEANUP_AUTOGRAD_CONTEXT_RESP=5 * whole + 2 * cut,
        RREF_FORK_REQUEST=whole + cut,  # worker1 gets its handle from a user
        RREF_CHILD_ACCEPT=1 + 3 * whole + 2 * cut,  # for that, and for each handle that goes to its owner
        RREF_USER_DELETE=2 + whole + cut,
        RREF_ACK=3 + 5 * whole + 4 * cut,
    )


if __name__ == "__main__":
    common.launch(WORLD, names=names_of(sys.argv[1] if len(sys.argv) > 1 else ""))
