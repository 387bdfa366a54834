"""Not one of the D workloads: a worker is killed while it serves two others; each keeps what it wrote to stderr.

The workers' logs are those of torch itself; each worker has a time zone of its own, as hosts may. Before that,
a call of each kind fails: an operator, a function of the user's, one that takes longer than its caller waits.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from typing import Any

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 3
ZONES = ("UTC", "Asia/Kolkata", "America/New_York")
SECONDS_TO_LIVE = 0.5
SETTLE_SECONDS = 0.5


def broken() -> None:
    raise KeyError("no such weight")


def slow() -> None:
    time.sleep(1.0)


def die() -> None:
    """Be killed, as by the system when memory runs out."""
    time.sleep(SECONDS_TO_LIVE)
    common.truth("killed")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def ask_the_dead() -> None:
    try:
        rpc.rpc_sync("worker1", slow)
    except RuntimeError as error:
        common.truth("lost", peer="worker1", error=str(error))
        raise


def run(rank: int) -> None:
    name = common.WORLD_NAME.format(rank)
    os.environ["TZ"] = ZONES[rank]
    time.tzset()
    common.truth("log", name=f"{name}.log", zone=ZONES[rank])
    log = os.open(f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 2)
    rpc.init_rpc(name, rank=rank, world_size=WORLD, rpc_backend_options=common.backend_options())
    info = rpc.get_worker_info()
    common.truth("worker", name=info.name, id=info.id, world_size=WORLD, torch=torch.__version__, group=0)
    print(f"{name} is ready", file=sys.stderr, flush=True)
    if rank == 0:
        drive()
    else:
        time.sleep(common.RPC_SECONDS)
    leave()


def leave() -> None:
    common.truth("left")
    sys.stdout.flush()
    os._exit(0)


def drive() -> None:
    attempt("worker1", torch.add, args=(torch.ones(2), torch.ones(3)))
    attempt("worker2", broken)
    attempt("worker2", slow, timeout=0.2)
    through_another = rpc.rpc_async("worker2", ask_the_dead)
    attempt("worker1", die)
    try:
        through_another.wait()
    except RuntimeError:
        traceback.print_exc()
    time.sleep(SETTLE_SECONDS)
    rpc.rpc_async("worker2", leave)
    time.sleep(SETTLE_SECONDS)


def attempt(*call: Any, **options: Any) -> None:
    try:
        rpc.rpc_sync(*call, **options)
    except Exception:
        traceback.print_exc()


if __name__ == "__main__":
    try:
        common.launch(WORLD)
    except SystemExit:
        sys.exit(0)  # one was killed, as it should
