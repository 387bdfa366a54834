"""Jobs that the agent records: built once for all tests of this machine, in the user's cache."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from rpcinspect.errors import RecordError
from rpcinspect.recorder.library import Library, build_agent
from tests.forks import popen
from tests.recorder.recording import environment

SECONDS = 180


@cache
def _built() -> Library | str:
    try:
        return build_agent(sys.executable)
    except RecordError as error:
        return str(error)


def need_agent() -> Library:
    """Skips a test where the agent can't be built, and says why. Who builds it at the same time waits."""
    built = _built()
    if isinstance(built, str):
        pytest.skip(f"no agent here: {built}")
    return built


PROLOGUE = """
import os, sys, time, threading
import torch, torch.distributed.rpc as rpc, torch.distributed.autograd as dist_autograd
import rpcinspect

def options(**more):
    return rpc.TensorPipeRpcBackendOptions(rpc_timeout=60, **more)
"""

Done = subprocess.CompletedProcess[str]


class Parent:
    """parent.py: the process that all workers of a test run are forks of."""

    def __init__(self) -> None:
        self._process = popen(
            [sys.executable, "-W", "ignore", str(Path(__file__).with_name("parent.py"))],
            env=environment(TP_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run_workers(self, folder: Path, body: str, world: int = 2) -> list[Done]:
        """A module `job` with `work(rank)`, run by each worker as a process of its own; what each came to."""
        (folder / "job.py").write_text(PROLOGUE + body, encoding="utf-8")
        asked = {"folder": str(folder), "world": world, "seconds": SECONDS}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        return [
            Done(["work", str(rank)], worker["code"], worker["out"], worker["err"])
            for rank, worker in enumerate(told)
        ]

    def close(self) -> None:
        with self._process:
            pass  # its input ends


def job(body: str, **settings: object) -> str:
    """A worker that is recorded from before init_rpc to after shutdown; rank 0 runs `body`."""
    given = "".join(f", {name}={value!r}" for name, value in settings.items())
    return f"""
import functions
def work(rank):
    with rpcinspect.recording("x.rpclog"{given}) as recording:
        rpc.init_rpc(f"worker{{rank}}", rank=rank, world_size=2, rpc_backend_options=options())
        if rank == 0:
            drive()
        rpc.shutdown()
    print(recording.counters, recording.why)

def drive():
    {body.strip().replace(chr(10), chr(10) + "    ")}
"""


FUNCTIONS = """
import os, time, torch
def scale(x, by): return x * by
def fail(x): raise ValueError("on purpose")
def sleep(seconds): time.sleep(seconds); return seconds
def die(): os._exit(7)
def length(x): return x.numel()
"""
