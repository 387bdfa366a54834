"""Bundled workloads one after the other in one command; their workers are forks of it, which imports torch
once for all of them.

    python workloads.py FOLDER LOG NAME [NAME,ARGUMENT ...]

FOLDER has their modules, LOG is what the agent records into, where it does. Prints a line of JSON for each:
what its workers printed, when it began, and where in the log it ends. What the recorder put into this process
at its start is in all of them, as in every job whose workers are forks.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

SECONDS = 90
LEAVE_SECONDS = 10
"""For the others: with the process of rank 0 goes the group's store, which they still read at the end."""


def worker(
    name: str, rank: int, arguments: list[str], port: int, output: IO[str], leaving: threading.Barrier
) -> None:
    os.environ.update(common.surroundings(port))
    sys.stdout = output
    common.work(name, rank, arguments)
    with contextlib.suppress(threading.BrokenBarrierError):  # of one that failed, its exit code tells
        leaving.wait(LEAVE_SECONDS)


def run(name: str, arguments: list[str]) -> str:
    """What the workers printed; all of them have ended well."""
    context, port = multiprocessing.get_context("fork"), common.free_port()
    told = []
    leaving = context.Barrier(importlib.import_module(name).WORLD)
    outputs = [tempfile.TemporaryFile("w+") for _ in range(importlib.import_module(name).WORLD)]  # noqa: SIM115
    workers = [
        context.Process(target=worker, args=(name, rank, arguments, port, output, leaving))
        for rank, output in enumerate(outputs)
    ]
    for process in workers:
        process.start()
    end = time.monotonic() + SECONDS
    try:
        for process in workers:
            process.join(max(0.0, end - time.monotonic()))
    finally:
        for process in workers:
            process.kill()
    for rank, (process, output) in enumerate(zip(workers, outputs)):  # noqa: B905 - as many
        with output:
            output.seek(0)
            told += common.truth_of(f"worker{rank}", output)
        assert process.exitcode == 0, (name, rank, process.exitcode)
    return "".join(told)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # it is too late to say so now; workers of workloads have it
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONHASHSEED": "0"})
    sys.path.insert(0, sys.argv[1])
    os.environ["OMP_NUM_THREADS"] = "1"  # torch looks when it is imported
    import common

    log = Path(sys.argv[2]).resolve()
    for what in sys.argv[3:]:
        name, *arguments = what.split(",")
        begin_ns = time.time_ns()
        printed = run(name, arguments)
        print(
            json.dumps({"name": what, "begin_ns": begin_ns, "log_end": size_of(log), "printed": printed}),
            flush=True,
        )
