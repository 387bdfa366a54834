"""A job as users write them: default transports, no thought of a recorder. Prints what it knows to be true.

    python job.py spawn | fork       two workers, children of this process
    torchrun --nproc-per-node 2 job.py
    python job.py killed             the second worker is killed by its own hand, after an answer

Each worker prints a line of JSON: who it is, and what its calls gave. The store is never of worker0, which
may be gone before worker1 has asked it for the last time: torch's shutdown fails then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if not how:  # torchrun gives the rest
        work(int(os.environ["RANK"]), int(os.environ["MASTER_PORT"]))
    else:
        context = mp.get_context("spawn" if how == "spawn" else "fork")
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        workers = [
            context.Process(target=work, args=(rank, store.port, how == "killed")) for rank in range(2)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
