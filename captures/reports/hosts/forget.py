"""Functions that answer before what they have sent is answered: nobody waits for it.

    python forget.py RANK ADDRESS       one of four workers, on a host of its own; ADDRESS is worker0's

Each worker prints a line of JSON for each call that it sends: who it is, `sent` with its `key`, and `serving`,
the function that sends it with the same key, or null for its own program.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

import torch
import torch.distributed.rpc as rpc

CALLS = 14
RANK = int(sys.argv[1])
futures: list[torch.futures.Future[Any]] = []


def send(to: int, function: Any, x: torch.Tensor, key: int, serving: str | None) -> None:
    told = {"worker": f"worker{RANK}", "sent": function.__name__, "to": f"worker{to}", "key": key}
    print(json.dumps({**told, "serving": serving}), flush=True)
    futures.append(rpc.rpc_async(f"worker{to}", function, args=(x, key)))


def outer(x: torch.Tensor, key: int) -> torch.Tensor:
    send(2, middle, x * 2, key, "outer")
    return x + 1


def middle(x: torch.Tensor, key: int) -> torch.Tensor:
    send(3, inner, x * 2, key, "middle")
    send(0, inner, x * 3, key, "middle")
    return x + 1


def inner(x: torch.Tensor, key: int) -> torch.Tensor:
    return x - 1


def main(address: str) -> None:
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://{address}:29511", rpc_timeout=30, _transports=["uv"], _channels=["basic"]
    )
    rpc.init_rpc(f"worker{RANK}", rank=RANK, world_size=4, rpc_backend_options=options)
    for key in range(CALLS if RANK == 0 else 0):
        send(1, outer, torch.ones(3), key, None)
        time.sleep(random.random() * 0.02)
    time.sleep(1)
    for future in futures:
        future.wait()
    rpc.shutdown(timeout=30)
    time.sleep(RANK == 0)  # it has the store


if __name__ == "__main__":
    sys.modules["forget"] = sys.modules["__main__"]
    for function in (outer, middle, inner):
        function.__module__ = "forget"
    main(sys.argv[2])
