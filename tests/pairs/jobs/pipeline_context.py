"""The same pipeline in an autograd context, with its backward pass."""

from __future__ import annotations

import torch
import torch.distributed.autograd as dist_autograd

from tests.pairs.common import numbers
from tests.pairs.jobs.pipeline_plain import BATCHES, LABELS, through

__all__ = ["LABELS", "work"]


def work() -> None:
    with dist_autograd.context() as context_id:
        outs = through([numbers(batch).requires_grad_() for batch in range(BATCHES)])
        dist_autograd.backward(context_id, [torch.stack(outs).sum()])
