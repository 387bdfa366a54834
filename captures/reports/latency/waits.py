"""Three workers that wait for each other in every way: `rpcinspect record -o waits.rpclog -- python waits.py`."""

import json
import os

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch.distributed.nn import RemoteModule

from waits_parts import Counter, Fast, Outer, Slow, _call_method, later, make_counter, outer, rest, slow, use


def passes(context_id, outer_module):
    """A gradient leaves w1, is worked on by w2 and comes back; then it comes back to main, too."""
    x = torch.ones(3, requires_grad=True)
    y = rpc.rpc_sync("w1", outer, (Slow.apply(x, 20, "main, backward at the end"),))
    dist_autograd.backward(context_id, [Slow.apply(y, 30, "main, backward at first").sum()])


def order(context_id, outer_module):
    """The call that was made first is over last."""
    x = torch.ones(3, requires_grad=True)
    one, two = rpc.rpc_async("w1", slow, (x, 80)), rpc.rpc_async("w2", slow, (x, 30))
    two.wait()
    rest(20, "main, while w1 works")
    one.wait()


def unhurried(context_id, outer_module):
    """Both are over before anybody waits for them."""
    x = torch.ones(3, requires_grad=True)
    one, two = rpc.rpc_async("w1", slow, (x, 10)), rpc.rpc_async("w2", slow, (x, 35))
    two.wait()
    rest(50, "main, alone")
    one.wait()
    rpc.rpc_sync("w1", slow, (x, 10))


def asynchronous(context_id, outer_module):
    rpc.rpc_sync("w1", later, (torch.ones(3, requires_grad=True),))


def nested(context_id, outer_module):
    outer_module.forward(torch.ones(3, requires_grad=True))


def chain(context_id, outer_module):
    """w2 fetches what w1 makes."""
    first = rpc.remote("w1", slow, (torch.ones(3, requires_grad=True), 30))
    rpc.remote("w2", use, (first, 40)).to_here()


def methods():
    """One class at two workers, by proxies and by a helper; one object by a function that makes it."""
    x = torch.ones(3)
    eight, fast = rpc.remote("w1", Counter, (8,)), rpc.remote("w2", Fast, (0,))
    made = rpc.remote("w1", make_counter, (3,))
    for _ in range(6):
        eight.rpc_sync().tick(x)
        fast.rpc_async().tick(x).wait()
        made.remote().tick(x).to_here()
        rpc.rpc_sync("w2", _call_method, (Fast.tick, fast, x))


def run(rank):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29571"
    rpc.init_rpc(["main", "w1", "w2"][rank], rank=rank, world_size=3)
    if rank == 0:
        module = RemoteModule("w1/cpu", Outer)
        for one in (passes, order, unhurried, asynchronous, nested, chain, passes):
            with dist_autograd.context() as context_id:
                print(json.dumps({"context_id": context_id, "job": one.__name__}), flush=True)
                one(context_id, module)
        print(json.dumps({"context_id": None, "job": "methods"}), flush=True)
        methods()
    rpc.shutdown()


if __name__ == "__main__":
    mp.spawn(run, nprocs=3)
