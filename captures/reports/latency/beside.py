"""Workers that do not always wait for what they asked: `rpcinspect record -o beside.rpclog -- python beside.py`."""

import json
import os
import time

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

from beside_parts import chained, eight, far, forgetting, rest, say, slow, threaded, use


def wait(future, what):
    """Say for how long this worker was idle for it."""
    begin = time.time()
    future.wait()
    say(waited_ms=round(1000 * (time.time() - begin)), what=what)


def at_once(x):
    """Nothing but waiting, and some work between the calls."""
    one, two = rpc.rpc_async("w1", slow, (x, 60)), rpc.rpc_async("w2", slow, (x, 30))
    wait(one, "w1")
    wait(two, "w2")
    rest(10, "main")
    wait(rpc.rpc_async("w1", far, (x, 40)), "w1, then w2")


def late(x):
    """The answer is there long before main looks at it."""
    one = rpc.rpc_async("w1", slow, (x, 30))
    rest(100, "main, beside w1")
    wait(one, "w1")
    wait(rpc.rpc_async("w2", slow, (x, 20)), "w2")


def first(x):
    """main waits for the shorter of two, and works on while the other one runs."""
    one, two = rpc.rpc_async("w1", slow, (x, 20)), rpc.rpc_async("w2", slow, (x, 50))
    wait(one, "w1")
    rest(90, "main, beside w2")
    wait(rpc.rpc_async("w1", slow, (x, 10)), "w1")
    wait(two, "w2")


def left(x):
    """main leaves the context before w1 answers."""
    rpc.rpc_async("w1", slow, (x, 150))
    rest(20, "main, beside w1")
    wait(rpc.rpc_async("w2", slow, (x, 40)), "w2")


def made(x):
    """The value is there long before it is fetched."""
    value = rpc.remote("w1", slow, (x, 40))
    rest(100, "main, beside w1")
    value.to_here()
    wait(rpc.rpc_async("w2", slow, (x, 20)), "w2")


def given(x):
    """w2 works, then fetches what w1 has not made yet."""
    value = rpc.remote("w1", slow, (x, 60))
    wait(rpc.rpc_async("w2", use, (value, 20, 20)), "w2, which waits for w1")


def unasked(x):
    """w1 never looks at what it has asked w2 for."""
    wait(rpc.rpc_async("w1", forgetting, (x, 80, 30)), "w1")


def thread(x):
    """A thread of what w1 serves asks w2."""
    wait(rpc.rpc_async("w1", threaded, (x, 60)), "w1, which waits for w2")


def callback(x):
    """A callback at w1 asks w2 again."""
    wait(rpc.rpc_async("w1", chained, (x, 30, 40, 20)), "w1, which waits for w2")


def own_callback(x):
    """A callback of main asks w2."""

    def then(future):
        rest(40, "main, callback")
        return rpc.rpc_sync("w2", slow, (future.wait(), 20))

    wait(rpc.rpc_async("w1", slow, (x, 30)).then(then), "w1, the callback, w2")
    wait(rpc.rpc_async("w1", eight, (x,)), "w1")


def run(rank):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29573"
    torch.set_num_threads(1)
    rpc.init_rpc(["main", "w1", "w2"][rank], rank=rank, world_size=3)
    if rank == 0:
        for to in ("w1", "w2"):
            rpc.rpc_sync(to, slow, (torch.ones(3), 0))
        for one in (at_once, late, first, left, made, given, unasked, thread, callback, own_callback, at_once):
            with dist_autograd.context() as context_id:
                print(json.dumps({"context_id": context_id, "job": one.__name__}), flush=True)
                one(torch.ones(3))
            time.sleep(0.2)
    rpc.shutdown()


if __name__ == "__main__":
    mp.spawn(run, nprocs=3)
