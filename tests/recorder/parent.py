"""Runs the workers of one job after the other, as forks of itself: torch is imported once for all of them.

In: on its standard input a line of JSON for each job: `folder`, where its module `job` lies, `world` and
`seconds`. Out: once all of its workers have ended, a line of JSON, for each worker `code`, `out`, `err`.
No recorder is here at its start: the jobs record from within. Their store is of this process, as torchrun has
it: one of worker0 may be gone before the others have asked it for the last time, and torch fails then.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from typing import IO, Any

import torch.distributed as dist
import torch.distributed.autograd
import torch.distributed.rpc  # noqa: F401 - for the workers

import rpcinspect  # noqa: F401 - for the workers


def worker(job: dict[str, Any], rank: int, port: int, out: IO[str], err: IO[str]) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True")
    os.chdir(job["folder"])
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.path.insert(0, job["folder"])
    from job import work  # of the folder: the test wrote it

    work(rank)


def run(job: dict[str, Any]) -> list[dict[str, Any]]:
    """A worker that takes too long is killed."""
    context = multiprocessing.get_context("fork")
    outputs = [(tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")) for _ in range(job["world"])]  # noqa: SIM115
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    workers = [
        context.Process(target=worker, args=(job, rank, store.port, *files))
        for rank, files in enumerate(outputs)
    ]
    end = time.monotonic() + job["seconds"]
    for process in workers:
        process.start()
    for process in workers:
        process.join(max(0.0, end - time.monotonic()))
    told = []
    for process, (out, err) in zip(workers, outputs, strict=True):
        process.kill()
        process.join()
        told.append({"code": process.exitcode, "out": whole(out), "err": whole(err)})
    return told


def whole(file: IO[str]) -> str:
    with file:
        file.seek(0)
        return file.read()


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
