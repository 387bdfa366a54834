"""Calls that nobody waits for, behind a large one on the same connection: their first byte is on the network
long after their function has returned. The worker that they go to stands still, as if the network were slow.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

import torch
import torch.distributed.rpc as rpc

from tests.pairs.common import numbers, pause, send, wait

CALLS = 8
LARGE = 3_000_000
"""Bytes, more than the kernels take in while nobody reads."""
LABELS = [f"push {n}" for n in range(CALLS)]


def stand_still() -> None:
    """Stop this process; another one lets it go on."""
    subprocess.Popen(["sh", "-c", f"sleep 0.06; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


def push(x: torch.Tensor, n: int) -> torch.Tensor:
    rpc.rpc_async("worker3", stand_still)
    time.sleep(0.03)
    rpc.rpc_async("worker3", take, args=(bytes(LARGE), n))
    for function in (first, second, third):
        rpc.rpc_async("worker3", function, args=(n,))
    return x + 1


def push_otherwise(x: torch.Tensor, n: int) -> torch.Tensor:
    return push(x, n)


def take(blob: bytes, n: int) -> int:
    return len(blob) + n


def first(n: int) -> int:
    return n + 1


def second(n: int) -> int:
    return n + 2


def third(n: int) -> int:
    return n + 3


def work() -> None:
    for n in range(CALLS):
        wait([send(rpc.rpc_async, f"push {n}", "worker1", push, (numbers(n), 10 * n), push_otherwise)])
        pause(100)
        time.sleep(0.1)
