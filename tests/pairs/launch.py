"""Run one job: `python -m tests.pairs.launch KIND FOLDER [--change HOW] [--seed N]`.

Its workers are forks of this process, which imports torch once. Out: truth-WORKER.jsonl of each. Exit code 1
if a worker failed or took too long.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import time
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc

from tests.pairs import common, truth_log

WORLD = 4
JOB_SECONDS = 60
GROUP_PORT, STORE_PORT = "PAIRS_GROUP_PORT", "PAIRS_STORE_PORT"


def worker(job: ModuleType, rank: int, folder: Path, change: str, seed: int) -> None:
    """Entry of one worker process."""
    torch.set_num_threads(1)
    torch.manual_seed(1000 + rank)
    name = f"worker{rank}"
    truth_log.install(folder, name)
    common.choose(job.LABELS, change, seed)
    if hasattr(job, "take_part"):  # its workers come and go as they like
        job.take_part(rank, folder, f"tcp://127.0.0.1:{os.environ[STORE_PORT]}")
        return
    init_method = f"tcp://127.0.0.1:{os.environ[STORE_PORT]}"
    rpc.init_rpc(name, rank=rank, world_size=WORLD, rpc_backend_options=common.options(init_method))
    if rank == 0:
        job.work()
    elif hasattr(job, "beside"):
        job.beside(rank)
    rpc.shutdown(timeout=common.SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--change", choices=common.CHANGES, default="none")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    # of this process, as torchrun has them: a worker's own may be gone before the others are done with it
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(2)]
    os.environ |= {
        "TP_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        STORE_PORT: str(stores[0].port),
        GROUP_PORT: str(stores[1].port),
    }
    job = importlib.import_module(f"tests.pairs.jobs.{given.kind}")
    start = multiprocessing.get_context("fork").Process
    workers = [
        start(target=worker, args=(job, rank, given.folder, given.change, given.seed))
        for rank in range(WORLD)
    ]
    for process in workers:
        process.start()
    end = time.monotonic() + JOB_SECONDS
    try:
        for process in workers:
            process.join(max(0.0, end - time.monotonic()))
    finally:
        for process in workers:
            if process.is_alive():
                process.kill()
                process.join()
    return 0 if all(process.exitcode == 0 for process in workers) else 1


if __name__ == "__main__":
    sys.exit(main())
