"""A worker that asks others at a pace of its own, or waits for each: `rpcinspect record -- python paced.py HOW`.

HOW is `steady` (calls take nearly as long as the pace), `now_and_then` (some do) or `waits`.
"""

import json
import os
import sys
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

from paced_parts import draw, measure

TAKES_MS = {"steady": (33, 38), "now_and_then": (15, 38), "waits": (15, 38)}
EVERY_S = 0.04
CALLS = 36


def run(rank, how):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29574"
    torch.set_num_threads(1)
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=4)
    if rank == 0:
        for to in (1, 2, 3):
            rpc.rpc_sync(f"w{to}", draw, (to, *TAKES_MS[how]))
        time.sleep(0.1)
        ask(how)
    rpc.shutdown()


def ask(how):
    x, waited, futures, begin = torch.ones(4), 0.0, [], time.time()
    for number in range(CALLS):
        futures.append(rpc.rpc_async(f"w{1 + number % 3}", measure, (x,)))
        since = time.time()
        if how == "waits":
            futures[-1].wait()
            waited += time.time() - since
        else:
            time.sleep(max(0.0, begin + (number + 1) * EVERY_S - since))
    torch.futures.wait_all(futures)
    told = {"how": how, "calls": CALLS, "waited_ms": round(1000 * waited)}
    print(json.dumps(told | {"took_ms": round(1000 * (time.time() - begin))}), flush=True)
    begin = time.time()
    for number in range(0, CALLS, 3):
        torch.futures.wait_all([rpc.rpc_async(f"w{to}", measure, (x,)) for to in (1, 2, 3)])
    print(json.dumps({"how": "at once", "took_ms": round(1000 * (time.time() - begin))}), flush=True)


if __name__ == "__main__":
    mp.spawn(run, (sys.argv[1],), nprocs=4)
