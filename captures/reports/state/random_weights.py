"""A trainer and a parameter server whose layer has random weights that nobody seeded; the trainer fetches the
parameters once, and trains them for three steps."""

import os, sys
import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.optim import DistributedOptimizer


def make():
    return nn.Linear(4, 2)


def parameters(layer):
    return [rpc.RRef(one) for one in layer.local_value().parameters()]


def forward(layer, x):
    return layer.local_value()(x)


def trainer():
    layer = rpc.remote("ps", make)
    refs = rpc.rpc_sync("ps", parameters, args=(layer,))
    for one in refs:
        one.to_here()
    optimizer = DistributedOptimizer(torch.optim.SGD, refs, lr=0.1)
    for step in range(3):
        with dist_autograd.context() as context:
            loss = rpc.rpc_sync("ps", forward, args=(layer, torch.full((3, 4), float(step)))).sum()
            dist_autograd.backward(context, [loss])
            optimizer.step(context)


def work(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    rpc.init_rpc(("trainer", "ps")[rank], rank=rank, world_size=2)
    if rank == 0:
        trainer()
    rpc.shutdown()


if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1],), nprocs=2)
