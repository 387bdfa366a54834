"""Not one of the D workloads: jobs that wait longer than they must, and that don't: `costs.py VARIANT`.

    one_by_one   two workers are asked one after the other, answers that hold nothing are waited for one by
                 one, and worker2 comes late to init_rpc
    at_once      the same calls at once, and nobody is late
    in_turn      calls that need the answer of the one before, or ask whom to ask next: nothing could be saved
    first_late   worker0, at which all meet, comes late

`timed` lines of the truth: what a clock beside the calls says, in seconds; `comes` lines: a worker calls
`init_rpc`.
"""

from __future__ import annotations

import time

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 3
RECORD_CALLS = False
"""Their lines of truth would take time, too."""
ROUNDS = 4
KEPT = 16
CALL_SECONDS = 0.03
KEEP_SECONDS = 0.01
LATE_SECONDS = 2.4
LATE = {"one_by_one": 2, "first_late": 0}
"""Who sleeps before init_rpc."""


def measure(x: torch.Tensor) -> torch.Tensor:
    time.sleep(CALL_SECONDS)
    return x * (2 + rpc.get_worker_info().id)


def keep(x: torch.Tensor) -> None:
    time.sleep(KEEP_SECONDS)


def next_worker(key: str) -> str:
    """Who knows more of a key."""
    time.sleep(CALL_SECONDS)
    return common.WORLD_NAME.format(3 - rpc.get_worker_info().id)


def one_by_one() -> None:
    begin = time.perf_counter()
    for number in range(ROUNDS):
        x = torch.full((4,), 1.5 + number)
        for to in ("worker1", "worker2"):
            rpc.rpc_sync(to, measure, args=(x,))
    took("measure", begin)
    begin = time.perf_counter()
    for number in range(KEPT):
        rpc.rpc_sync("worker1", keep, args=(torch.full((100,), 1.5 + number),))
    took("keep", begin)


def at_once() -> None:
    begin = time.perf_counter()
    for number in range(ROUNDS):
        x = torch.full((4,), 1.5 + number)
        futures = [rpc.rpc_async(to, measure, args=(x,)) for to in ("worker1", "worker2")]
        torch.futures.wait_all(futures)
    took("measure", begin)
    begin = time.perf_counter()
    kept = [rpc.rpc_async("worker1", keep, args=(torch.full((100,), 1.5 + n),)) for n in range(KEPT)]
    torch.futures.wait_all(kept)
    took("keep", begin)


def in_turn() -> None:
    begin = time.perf_counter()
    for number in range(ROUNDS):
        x = torch.full((4,), 1.5 + number)
        for to in ("worker1", "worker2"):
            x = torch.relu(rpc.rpc_sync(to, measure, args=(x,))) + 1
    took("measure", begin)
    begin = time.perf_counter()
    to = "worker1"
    for _ in range(2 * ROUNDS):
        to = rpc.rpc_sync(to, next_worker, args=("key",))
    took("next_worker", begin)


def took(function: str, begin: float) -> None:
    common.truth("timed", function=function, seconds=time.perf_counter() - begin)


def run(rank: int, variant: str) -> None:
    if LATE.get(variant) == rank:
        time.sleep(LATE_SECONDS)
    common.truth("comes")
    with common.worker(rank, WORLD):
        if rank == 0:
            DRIVERS[variant]()


DRIVERS = {"one_by_one": one_by_one, "at_once": at_once, "in_turn": in_turn, "first_late": at_once}


if __name__ == "__main__":
    common.launch(WORLD)
