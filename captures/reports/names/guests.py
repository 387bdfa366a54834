"""Groups without a fixed size, whose guest leaves and comes back with another id.

Three jobs with equal names: `first` and `second`, one after the other at the same store port, and `beside`,
at another one, which is there all the time. In each the guest comes three times, each time as a process of
its own with a lower id than before. It calls worker0 in an autograd context, worker0 calls worker1, and worker0
opens a context of its own with the guest and worker1.

    unshare -n sh -c 'ip link set lo up; export PYTHONPATH=captures
        rpcinspect record --via wire -o guests.pcap -- python guests.py > guests.truth'

Each line of truth says the `job` and, as `member`, the id of the worker.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import torch.distributed.rpc as rpc

import common
from describe import truth

VISITS = 3
HIGHEST = 32767
"""The highest id that a worker can have."""
WORKERS = [("worker0", 0), ("worker1", 1), *(("guest", HIGHEST - number) for number in range(VISITS))]
WAIT_SECONDS = 60


def scale(x: torch.Tensor, by: int) -> torch.Tensor:
    return x * by


def relay(x: torch.Tensor) -> torch.Tensor:
    """The guest asks worker0, which asks worker1."""
    return rpc.rpc_sync("worker1", scale, args=(x * 2, 3)) + 1


def call_back(guest: str) -> None:
    """worker0's own context, in which the guest and worker1 take part."""
    step(["worker1", guest])


def step(callees: list[str]) -> None:
    x = torch.arange(3.0).requires_grad_()
    with common.context() as context_id:
        results = [rpc.rpc_sync(to, scale, args=(x, number + 2)) for number, to in enumerate(callees)]
        common.backward(context_id, [sum(result.sum() for result in results)])
        common.gradients(context_id, x=x)


def visit(name: str) -> None:
    x = torch.arange(3.0).requires_grad_()
    with common.context() as context_id:
        y = rpc.rpc_sync("worker0", relay, args=(x,))
        common.backward(context_id, [y.sum()])
        common.gradients(context_id, x=x)
    rpc.rpc_sync("worker0", call_back, args=(name,))


def reach(sign: str) -> None:
    Path(sign).touch()


def await_sign(sign: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not Path(sign).exists():
        if time.monotonic() > end:
            raise TimeoutError(sign)
        time.sleep(0.01)


def take_part(name: str, worker_id: int, folder: Path, port: int) -> None:
    """Entry of one process; its folder has the signs by which the script says who comes and leaves."""
    os.chdir(folder)
    os.environ |= common.surroundings(port)
    with open(f"{name}-{worker_id}.out", "w") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
    torch.manual_seed(1000)
    torch.set_num_threads(1)
    await_sign(f"join-{name}-{worker_id}")
    rpc.init_rpc(name, rank=worker_id, rpc_backend_options=common.backend_options())
    info = rpc.get_worker_info()
    truth("worker", name=info.name, id=info.id, torch=torch.__version__, group=0)
    reach(f"joined-{name}-{worker_id}")
    if name == "guest":
        visit(name)
    await_sign(f"leave-{name}-{worker_id}")
    rpc.shutdown(timeout=common.RPC_SECONDS)
    truth("shutdown", name=name)
    reach(f"left-{name}-{worker_id}")


class Job:
    """A group that comes and goes at one store port."""

    def __init__(self, name: str, port: int, folder: Path) -> None:
        self.name = name
        self._folder = folder / name
        self._folder.mkdir()
        self._processes: list[BaseProcess] = []
        for worker, number in WORKERS:
            process = multiprocessing.get_context("fork").Process(
                target=take_part, args=(worker, number, self._folder, port)
            )
            process.start()
            self._processes.append(process)

    def _sign(self, sign: str) -> str:
        return str(self._folder / sign)

    def come(self, worker: str, number: int) -> None:
        reach(self._sign(f"join-{worker}-{number}"))
        await_sign(self._sign(f"joined-{worker}-{number}"))

    def go(self, worker: str, number: int) -> None:
        reach(self._sign(f"leave-{worker}-{number}"))
        await_sign(self._sign(f"left-{worker}-{number}"))

    def begin(self) -> None:
        for member in WORKERS[:2]:
            self.come(*member)

    def host(self, turn: int) -> None:
        """The guest comes, and leaves."""
        guest = WORKERS[2 + turn]
        self.come(*guest)
        self.go(*guest)

    def end(self) -> None:
        for member in reversed(WORKERS[:2]):
            self.go(*member)
        for process in self._processes:
            process.join(WAIT_SECONDS)

    def print_truth(self) -> bool:
        """Prints what its processes printed; returns whether all ended well."""
        for worker, number in WORKERS:
            job = f'TRUTH {{"job": "{self.name}", "member": {number}, '
            output = Path(self._sign(f"{worker}-{number}.out")).read_text().splitlines(keepends=True)
            for line in common.truth_of(worker, output):
                sys.stdout.write(job + line.removeprefix("TRUTH {"))
        return all(process.exitcode == 0 for process in self._processes)


def main() -> None:
    port, other = common.free_port(), common.free_port()
    with tempfile.TemporaryDirectory() as folder:
        first, second, beside = (
            Job(name, at, Path(folder)) for name, at in (("first", port), ("second", port), ("beside", other))
        )
        first.begin()
        beside.begin()
        for turn in range(VISITS):
            first.host(turn)
            if not turn:
                beside.host(turn)
        first.end()
        second.begin()
        for turn in range(VISITS):
            second.host(turn)
            if turn:
                beside.host(turn)
        beside.end()
        second.end()
        good = [job.print_truth() for job in (first, second, beside)]
    sys.stdout.flush()
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    import guests  # functions travel under the module's name

    guests.main()
