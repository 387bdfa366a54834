"""What every job shares: pauses, calls of which one may be changed, inputs.

In: which call of this run is changed, and how (`choose`). Out: the call as it is made, and in the truth what
became of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed.rpc as rpc

from tests.pairs.truth_log import labelled, write

CHANGES = ("none", "value", "argument", "function", "drop")
SECONDS = 30
"""Timeout of each call."""

_chosen: tuple[str, str] | None = None
_dice = random.SystemRandom()


def choose(labels: Sequence[str], change: str, seed: int) -> None:
    """Choose the call that is changed in this run: one of the middle third."""
    global _chosen
    third = len(labels) // 3
    label = random.Random(seed).choice(labels[third : len(labels) - third])
    _chosen = None if change == "none" else (label, change)


def pause(milliseconds: float = 20) -> None:
    """Wait for up to so long; no two runs alike."""
    time.sleep(_dice.random() * milliseconds / 1000)


def shuffled(things: Sequence[Any]) -> list[Any]:
    """In an order that no two runs share."""
    return _dice.sample(things, len(things))


def numbers(seed: int, size: int = 4) -> torch.Tensor:
    """Whole numbers that no other seed below 1,000 gives; sums and small products of them are exact."""
    return torch.arange(float(size)) + 64 * seed


def altered(
    label: str, function: Any, other: Any, args: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...]] | None:
    """Function and arguments of a call, changed if it is the one; None: it is left out."""
    if _chosen is None or _chosen[0] != label:
        return function, args
    change = _chosen[1]
    if change == "drop":
        write("dropped", label=label)
        return None
    write("changed", label=label, change=change)
    if change == "function":
        return other, args
    kind = torch.Tensor if change == "value" else int
    place = next(n for n, value in enumerate(args) if isinstance(value, kind))
    return function, (*args[:place], _another(args[place]), *args[place + 1 :])


def _another(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value + 1
    found = value.detach().clone()
    found.view(-1)[1] += 1
    return found.requires_grad_(value.requires_grad)


def send(
    how: Callable[..., Any], label: str, to: str, function: Any, args: tuple[Any, ...], other: Any
) -> Any:
    """Make a call by `rpc_async`, `rpc_sync` or `remote`, or its changed form; None if it is left out."""
    made = altered(label, function, other, args)
    if made is None:
        return None
    with labelled(label):
        return how(to, made[0], args=made[1])


def wait(futures: Sequence[Any]) -> list[Any]:
    """The results of those that were sent."""
    return [future.wait() for future in futures if future is not None]


def options(init_method: str) -> rpc.TensorPipeRpcBackendOptions:
    """Everything over TCP; more threads than requests at once, as each that waits for an answer holds one."""
    return rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=32,
        rpc_timeout=SECONDS,
        init_method=init_method,
        _transports=["uv"],
        _channels=["basic"],
    )
