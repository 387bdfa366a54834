"""A job whose workers end in different ways, each said by its name on the command line.

    python ending.py fork ends,killed,raises,exits,leaves     children of this process
    python ending.py spawn ends,raises                        by torch.multiprocessing.spawn
    torchrun --nproc-per-node 2 ending.py all killed,waits    children of torchrun
    python ending.py one RANK PORT ends,exits                 one worker, in this process

`killed` and `leaves` end while they serve a call of worker0, the others once worker0 has called them.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

WHILE_SERVING = ("killed", "leaves")


def served(how: str) -> str:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "leaves":
        os._exit(4)
    return how


def work(rank: int, port: int | None, hows: Sequence[str]) -> None:
    if port is not None:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    how = hows[rank]
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=30)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=len(hows), rpc_backend_options=options)
    if rank == 0:
        for other, its in enumerate(hows[1:], 1):
            if its not in WHILE_SERVING:
                rpc.rpc_sync(f"worker{other}", served, args=(its,))
        for other, its in enumerate(hows[1:], 1):
            if its in WHILE_SERVING:
                try:
                    rpc.rpc_sync(f"worker{other}", served, args=(its,))
                except RuntimeError as error:
                    print(f"worker{other}: {error}", flush=True)
        open("over", "w").close()
    else:
        while not os.path.exists("over"):
            time.sleep(0.01)
    end(how)


def end(how: str) -> None:
    if how == "raises":
        raise ValueError("on purpose")
    if how == "exits":
        sys.exit(3)
    if how == "waits":
        time.sleep(60)
    rpc.shutdown(graceful=False)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    start, *rest, ways = sys.argv[1:]
    names = ways.split(",")
    if start == "fork":
        port, context = free_port(), mp.get_context("fork")
        workers = [context.Process(target=work, args=(rank, port, names)) for rank in range(len(names))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    elif start == "spawn":
        mp.spawn(work, (free_port(), names), nprocs=len(names))
    elif start == "one":
        work(int(rest[0]), int(rest[1]), names)
    else:  # torchrun gives the rest
        work(int(os.environ["RANK"]), None, names)
