"""What recording costs: rates of calls with a recorder beside those without, in interleaved rounds.

    python bench/record.py [--rounds 15] [--scale 1.0]

In: torch, for the agent a compiler. Out: a table of ratios to stock, of time and of the workers' processor
time (the sniffer's is not in it), with 95 % intervals by bootstrap over rounds, and whether targets hold. Two
workers on this host, on torch's own transports unless the wire is recorded; `TCP` is torch on the transport
that the wire makes it use, recorded by nobody. Each round runs every mode once, in an order that moves on; a
ratio is of one round, so that what disturbs a whole round disturbs both. Workers are forked from a process
that has imported torch.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rpcinspect.errors import RecordError
from rpcinspect.recorder.agent import AgentMechanism
from rpcinspect.recorder.namespace import enter_own_network
from rpcinspect.recorder.record import Mechanism
from rpcinspect.recorder.wire import WireMechanism

CALLS = {"4 floats": 300, "1 MiB": 40, "forward + backward": 40}
"""Of one round."""
TARGETS = {
    ("4 floats", "agent, small"): 1.05,
    ("4 floats", "agent, all"): 1.05,
    ("1 MiB", "agent, small"): 1.5,
    ("1 MiB", "agent, all"): 1.5,
    ("4 floats", "wire"): 1.4,
    ("1 MiB", "wire"): 1.4,
    ("forward + backward", "wire"): 1.4,
}
"""Of the time, by that of stock."""
WARM_UP = 20
RESAMPLES = 4000

Measured = dict[str, tuple[float, float]]
"""Workload → (seconds, seconds of the workers' processors)."""


# --- in the workers ---------------------------------------------------------------------------------------


def echo(x: Any) -> Any:
    return x


def worker(
    rank: int, port: int, mode: str, settings: dict[str, Any], calls: dict[str, int], out: Any
) -> None:
    """One of the two; the first one measures."""
    import torch
    import torch.distributed.rpc as rpc

    import rpcinspect.recorder.startup.rpcinspect_agent as by_agent
    import rpcinspect.recorder.startup.rpcinspect_wire as by_wire

    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TP_SOCKET_IFNAME": "lo"}
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo"}
    recorders = None
    if mode in ("wire", "TCP"):
        by_wire.force(rpc.TensorPipeRpcBackendOptions)
    elif mode.startswith("agent"):
        recorders = by_agent.stand_in_for(rpc, settings)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, rpc_timeout=60)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        out.send(measure(calls))
    rpc.shutdown()
    if recorders is not None:
        recorders.close()


def measure(calls: dict[str, int]) -> Measured:
    import torch
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc

    small, large = torch.ones(4), torch.ones(1 << 18)
    leaf = torch.ones(4, requires_grad=True)

    def context() -> None:
        with dist_autograd.context() as number:
            y = rpc.rpc_sync("worker1", torch.mul, args=(leaf, 2))
            dist_autograd.backward(number, [y.sum()])

    jobs: dict[str, Callable[[], object]] = {
        "4 floats": lambda: rpc.rpc_sync("worker1", echo, args=(small,)),
        "1 MiB": lambda: rpc.rpc_sync("worker1", echo, args=(large,)),
        "forward + backward": context,
    }

    def processors() -> float:
        return time.process_time() + float(rpc.rpc_sync("worker1", time.process_time))

    measured = {}
    for name in calls:
        job = jobs[name]
        for _ in range(min(WARM_UP, calls[name])):
            job()
        used, begin = processors(), time.perf_counter()
        for _ in range(calls[name]):
            job()
        taken = time.perf_counter() - begin
        measured[name] = taken, processors() - used
    return measured


# --- outside of them --------------------------------------------------------------------------------------


def mechanism_of(mode: str, file: Path) -> Mechanism | None:
    if mode in ("stock", "TCP"):
        return None
    if mode == "wire":
        return WireMechanism(file)
    return AgentMechanism(file, [sys.executable], tensors=mode.removeprefix("agent, "), tell=print)


def run(mode: str, folder: Path, port: int, calls: dict[str, int]) -> tuple[Measured, int, int]:
    """One group of workers: what it measured, bytes of the recording, messages or packets lost."""
    mechanism = mechanism_of(mode, folder / "x")
    try:
        settings: dict[str, Any] = {}
        if mechanism is not None:
            settings = dict(mechanism.settings())
            mechanism.begin(mechanism.stage())
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        workers = [
            context.Process(target=worker, args=(rank, port, mode, settings, calls, theirs))
            for rank in (0, 1)
        ]
        for process in workers:
            process.start()
        theirs.close()
        try:
            measured: Measured = ours.recv()
        finally:
            for process in workers:
                process.join(60)
                if process.is_alive():
                    process.kill()
                    process.join()
        if mechanism is None:
            return measured, 0, 0
        recorded = mechanism.finish([], {})
        return measured, recorded.bytes, recorded.dropped
    finally:
        if mechanism is not None:
            mechanism.close()


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The median, and 95 % of what it is in samples drawn again."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return statistics.median(ratios), medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def shown(ratios: list[float], target: float | None = None) -> str:
    """The interval in words, and whether it is below the target."""
    middle, low, high = interval(ratios)
    words = f"{middle:.2f} [{low:.2f}, {high:.2f}]"
    if target is None:
        return words
    holds = "holds" if high <= target else "missed" if low > target else "open"
    return f"{words}; {target}: {holds}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of calls")
    options = parser.parse_args()
    modes = ["stock", "agent, small", "agent, all", "TCP"]
    try:
        enter_own_network()
        modes.append("wire")
    except RecordError as error:
        print(f"without the wire: {error}")
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # the namespace knows no names of hosts
    try:
        import torch.distributed.rpc  # noqa: F401 - the workers have it then
    except ImportError as error:
        print(f"nothing to measure: {error}")
        return 0
    try:
        AgentMechanism(Path("x"), [sys.executable], tell=print)
    except RecordError as error:
        print(f"without the agent: {error}")
        modes = [mode for mode in modes if not mode.startswith("agent")]
    calls = {name: max(2, int(count * options.scale)) for name, count in CALLS.items()}
    results: dict[str, list[Measured]] = {mode: [] for mode in modes}
    lost = dict.fromkeys(modes, 0)
    with tempfile.TemporaryDirectory(prefix="rpcinspect-bench-") as name:
        for number in range(options.rounds):
            turn = number % len(modes)
            for at, mode in enumerate(modes[turn:] + modes[:turn]):
                measured, _, dropped = run(mode, Path(name), 20000 + number * len(modes) + at, calls)
                results[mode].append(measured)
                lost[mode] += dropped
                with suppress(FileNotFoundError):
                    (Path(name) / "x").unlink()
    tell(results, lost, calls)
    return 0


def tell(results: dict[str, list[Measured]], lost: dict[str, int], calls: dict[str, int]) -> None:
    """A table for docs/recording.md."""
    print("| calls | recorder | calls/s | time, of stock; target | processor time, of stock |")
    print("|---|---|---|---|---|")
    for name, count in calls.items():
        stock = [measured[name] for measured in results["stock"]]
        for mode, measured in results.items():
            own = [one[name] for one in measured]
            rate = statistics.median(count / seconds for seconds, _ in own)
            ratios = [a[0] / b[0] for a, b in zip(own, stock, strict=True)]
            times = shown(ratios, TARGETS.get((name, mode)))
            used = shown([a[1] / b[1] for a, b in zip(own, stock, strict=True)])
            told = ("", "") if mode == "stock" else (times, used)
            print(f"| {name} | {mode} | {rate:,.0f} | {told[0]} | {told[1]} |")
    for mode, count in lost.items():
        if count:
            print(f"{mode}: {count:,} were lost")


if __name__ == "__main__":
    sys.exit(main())
