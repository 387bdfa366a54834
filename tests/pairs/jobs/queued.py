"""Calls that nobody waits for, behind a large one on the same connection: their first byte is on the network
long after their function has returned. The worker that they go to stands still, as if the network were slow.
"""

from __future__ import annotations

import os
import signal
import threading

import torch
import torch.distributed.rpc as rpc

from tests.pairs.common import numbers, pause, send, wait

CALLS = 8
LARGE = 8_000_000
"""Bytes, more than the kernels take in while nobody reads."""
LABELS = [f"push {n}" for n in range(CALLS)]


def process() -> int:
    return os.getpid()


def push(x: torch.Tensor, n: int, whom: int) -> torch.Tensor:
    os.kill(whom, signal.SIGSTOP)
    threading.Timer(0.06, os.kill, (whom, signal.SIGCONT)).start()
    rpc.rpc_async("worker3", take, args=(bytes(LARGE), n))
    for function in (first, second, third):
        rpc.rpc_async("worker3", function, args=(n,))
    return x + 1


def push_otherwise(x: torch.Tensor, n: int, whom: int) -> torch.Tensor:
    return push(x, n, whom)


def take(blob: bytes, n: int) -> int:
    return len(blob) + n


def first(n: int) -> int:
    return n + 1


def second(n: int) -> int:
    return n + 2


def third(n: int) -> int:
    return n + 3


def work() -> None:
    whom = rpc.rpc_sync("worker3", process)
    for n in range(CALLS):
        args = (numbers(n), 10 * n, whom)
        wait([send(rpc.rpc_async, f"push {n}", "worker1", push, args, push_otherwise)])
        pause(150)
