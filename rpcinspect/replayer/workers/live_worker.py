"""A live worker on a host of your choice: a program of its own, in plain torch, that `torchrun` starts.

    torchrun --nnodes 2 --nproc-per-node 1 --node-rank K --master-addr HOST --master-port PORT \
        live_worker.py ps trainer1 --path ./src

In: the names of all live workers, one for each rank, and what they may import. Out: a dynamic group
(`init_rpc` without a world size), which `rpcinspect join` may join; each worker prints where.
It runs until SIGTERM or Ctrl-C, and then leaves the group. The file needs nothing of rpcinspect: it may be
copied to hosts that have torch only. **Whoever reaches the ports of these workers can run code in them**, as
in any group of torch.distributed.rpc.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import signal
import sys
import threading


def options() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="A live worker, for rpcinspect join.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="the workers, by rank")
    parser.add_argument("--path", action="append", default=[], metavar="DIR", help="your sources")
    parser.add_argument("--main", metavar="FILE", help="the job's script, run as __mp_main__")
    parser.add_argument("--import", action="append", default=[], dest="imports", metavar="MODULE")
    parser.add_argument("--seed", type=int, help="of this worker's random numbers")
    parser.add_argument("--threads", type=int, default=1, help="as for torch.set_num_threads")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="of this worker's calls"
    )
    parser.add_argument("--transport", action="append", metavar="NAME", help="default: as torch chooses")
    parser.add_argument("--channel", action="append", metavar="NAME", help="default: as torch chooses")
    return parser.parse_args()


def load_main(path: str) -> None:
    """Makes `__main__.f` and `__mp_main__.f` of a script resolve, without its `if __name__ == "__main__"`."""
    loader = importlib.machinery.SourceFileLoader("__mp_main__", path)
    spec = importlib.util.spec_from_file_location("__mp_main__", path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    loader.exec_module(module)


def main() -> None:
    """Joins the group, waits for a signal, leaves the group."""
    given = options()
    parent = os.getppid()
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())

    # Before torch and in this order, in which a replay looks for the files whose names it allows.
    folders = [*given.path, *([os.path.dirname(os.path.abspath(given.main))] if given.main else [])]
    sys.path[:0] = [os.path.abspath(folder) for folder in folders]
    import torch
    import torch.distributed.autograd
    import torch.distributed.rpc as rpc

    torch.set_num_threads(given.threads)
    if given.seed is not None:
        torch.manual_seed(given.seed)
    for module in given.imports:
        importlib.import_module(module)
    if given.main is not None:
        load_main(given.main)
    rank = int(os.environ["RANK"])
    rpc.init_rpc(
        given.names[rank],
        rank=rank,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method="env://",
            rpc_timeout=given.timeout,
            _transports=given.transport,
            _channels=given.channel,
        ),
    )
    where = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    print(f"{given.names[rank]} is a member; join with: rpcinspect join {where} FILE --yes", flush=True)
    while not over.wait(1.0):  # so that a signal's handler runs on every platform
        if os.getppid() != parent:  # torchrun was killed; the store may be gone, so that nobody can leave
            with contextlib.suppress(OSError):  # so may be whoever reads this
                print(f"{given.names[rank]} ends, since the process that started it is gone", flush=True)
            os._exit(1)
    rpc.shutdown()
    print(f"{given.names[rank]} has left", flush=True)


if __name__ == "__main__":
    main()
