"""A job as users write them: default transports, no thought of a recorder. Prints what it knows to be true.

    python job.py spawn | fork       two workers, children of this process
    torchrun --nproc-per-node 2 job.py
    python job.py killed             the second worker is killed by its own hand, after an answer

Each worker prints a line of JSON: who it is, and what its calls gave.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

CALLS = 5


def total(x: torch.Tensor, times: int) -> float:
    return float(x.sum()) * times


def end_yourself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def work(rank: int, port: int, killed: bool = False) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    answers: list[Any] = []
    if rank == 0:
        answers = [rpc.rpc_sync("worker1", total, args=(torch.ones(4), times)) for times in range(CALLS)]
    print(json.dumps({"worker": f"worker{rank}", "pid": os.getpid(), "answers": answers}), flush=True)
    if not killed:
        rpc.shutdown()
    elif rank == 0:
        try:
            rpc.rpc_sync("worker1", end_yourself, timeout=5)
        except RuntimeError:
            os._exit(0)
    else:
        signal.pause()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if not how:  # torchrun gives the rest
        work(int(os.environ["RANK"]), int(os.environ["MASTER_PORT"]))
    else:
        context = mp.get_context("spawn" if how == "spawn" else "fork")
        port = free_port()
        workers = [context.Process(target=work, args=(rank, port, how == "killed")) for rank in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
