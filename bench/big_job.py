"""The job behind the captures `big` and `wire`: tensors of 64 MB there and back between two workers.

Out: one line `TRUTH {…}` with what the driver counted. Run by make.py from the neutral path, beside the
modules of captures/ that it imports.
"""

from __future__ import annotations

import common
import torch
import torch.distributed.rpc as rpc

WORLD = 2
RECORD_CALLS = False
SECONDS = 300
FLOATS = 16_000_000


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def run(rank: int, iterations: str, seed: str) -> None:
    with common.worker(rank, WORLD):
        if rank == 0:
            torch.manual_seed(int(seed))
            drive(int(iterations))


def drive(iterations: int) -> None:
    """Each time one request and one answer."""
    equal = 0
    for _ in range(iterations):
        x = torch.randn(FLOATS)
        equal += int(torch.equal(rpc.rpc_sync("worker1", double, args=(x,)), x * 2))
    common.truth("counts", iterations=iterations, equal=equal, tensor_bytes=4 * FLOATS)
    common.expect(WORLD, PYTHON_CALL=iterations, PYTHON_RET=iterations)


if __name__ == "__main__":
    common.launch(WORLD, SECONDS)
