"""What programs do with values that they got: compare, hash, show, go through them, copy, send on, compute.

Nothing that is raised matters, but for `Stop`: a fault was seen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.distributed.rpc import internal

from tests.fuzz.model.reach import LEAVES
from tests.fuzz.model.watch import Stop

Use = Callable[[Any], object]
SOME = 100_000
"""Elements of a tensor or array that is gone through."""
FEW = 5


def use(value: Any) -> None:
    """Everything, with the value and what it is made of."""
    for uses, values in ((OF_ALL, [value]), (OF_PARTS, _parts(value))):
        for each in values:
            for one in uses:
                try:
                    one(each)
                except Stop:
                    raise
                except BaseException:
                    continue


def _parts(value: Any) -> list[Any]:
    found = [value]
    for _ in range(2):
        for part in list(found):
            if isinstance(part, (tuple, list)):
                found += list(part)[:FEW]
            elif type(part) is dict:
                found += list(part.values())[:FEW]
    return list({id(part): part for part in found if type(part) not in LEAVES}.values())


def _compute(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        if value.numel() < SOME:
            (value.detach().clone() + 1).tolist()
            if value.requires_grad:
                value.sum().backward()
            if value.layout is not torch.strided:
                value.to_dense()
    elif isinstance(value, np.ndarray):
        if value.size < SOME:
            value.tolist()
            (value.copy() == value).any()
            value.sum()
    elif isinstance(value, np.generic):
        value.item()
    elif isinstance(value, np.dtype):
        np.zeros(3, value).tolist()
    else:
        len(value)
        value[0]
        value + value


def _call(*args: Any) -> Use:
    """As a callback is called, and what comes of it."""

    def called(value: Any) -> None:
        if callable(value) and not isinstance(value, type):
            _compute(value(*args))

    return called


OF_ALL: tuple[Use, ...] = (repr, internal.serialize, copy.deepcopy)
OF_PARTS: tuple[Use, ...] = (
    hash,
    lambda value: value == copy.copy(value),
    bool,
    lambda value: [one for one, _ in zip(value, range(FEW), strict=False)],
    _compute,
    lambda value: value.items(),
    lambda value: value.keys(),
    lambda value: value.local_value(),
    lambda value: value.detach(),
    lambda value: value.copy(),
    lambda value: value["not there"],
    _call(),
    _call(1),
    _call("x", []),
)
