"""Jobs in which processes find no way to each other; each prints what became of it.

    python failures.py again      worker1 ends, and one more worker1 comes to the same store; the others talk
    python failures.py nobody     two workers look for a store where nobody listens
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import time
from datetime import timedelta
from multiprocessing.synchronize import Event as EventType

import torch.distributed.rpc as rpc


def say(worker: str, event: str, **what: object) -> None:
    print("TRUTH " + json.dumps({"worker": worker, "event": event, "time_ns": time.time_ns(), **what}), flush=True)


def double(value: int) -> int:
    return 2 * value


def leave() -> None:
    os._exit(0)


def options(port: int, timeout_s: float = 60) -> rpc.TensorPipeRpcBackendOptions:
    return rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}", rpc_timeout=timeout_s, _transports=["uv"], _channels=["basic"]
    )


def join(rank: int, world: int, port: int) -> bool:
    name = f"worker{rank}"
    try:
        rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=options(port))
    except Exception as error:
        say(name, "init failed", error=f"{type(error).__name__}: {error}".partition("\n")[0])
        return False
    say(name, "init")
    return True


def first(rank: int, port: int, stop: EventType) -> None:
    if not join(rank, 3, port):
        os._exit(1)
    if rank == 0:
        rpc.rpc_sync("worker1", double, args=(1,))
        try:
            rpc.rpc_sync("worker1", leave)
        except RuntimeError as error:
            say("worker0", "lost", error=str(error).partition("\n")[0])
        while not stop.is_set():
            rpc.rpc_sync("worker2", double, args=(2,))
            time.sleep(0.3)
    stop.wait()
    time.sleep(0.3)  # worker0 is the last to call
    os._exit(0)


def again(port: int, came: EventType) -> None:
    came.set()
    say("worker1", "comes again")
    join(1, 3, port)
    os._exit(0)


def nobody(rank: int, port: int) -> None:
    from torch.distributed import TCPStore

    try:
        TCPStore("127.0.0.1", port, 2, False, timedelta(seconds=2))
    except Exception as error:
        say(f"worker{rank}", "init failed", error=f"{type(error).__name__}: {error}".partition("\n")[0])


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    port, stop = free_port(), context.Event()
    if sys.argv[1] == "nobody":
        started = [context.Process(target=nobody, args=(rank, port)) for rank in (0, 1)]
        for one in started:
            one.start()
        for one in started:
            one.join()
    else:
        started = [context.Process(target=first, args=(rank, port, stop)) for rank in range(3)]
        for one in started:
            one.start()
        started[1].join()
        came = context.Event()
        late = context.Process(target=again, args=(port, came))
        late.start()
        came.wait()
        late.join(4)
        if late.is_alive():
            say("worker1", "killed")
            late.kill()
            late.join()
        stop.set()
        for one in started:
            one.join()
