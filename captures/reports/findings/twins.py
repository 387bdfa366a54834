"""Two trainers in step with each other, each with a replica of its own: the same first weights, the same data."""
import os, time
import torch, torch.nn as nn, torch.distributed.autograd as dist_autograd, torch.distributed.rpc as rpc, torch.multiprocessing as mp
from torch.distributed.optim import DistributedOptimizer


def twin(name):
    torch.manual_seed(5)
    return nn.Linear(4, 4)


def params(rref):
    return [rpc.RRef(p) for p in rref.local_value().parameters()]


def fwd(rref, x):
    return rref.local_value()(x)


def work(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29737")
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=3, rpc_backend_options=options)
    if rank > 0:
        net = rpc.remote("worker0", twin, args=("a",))
        optim = DistributedOptimizer(torch.optim.SGD, rpc.rpc_sync("worker0", params, args=(net,)), lr=0.125)
        x = torch.arange(8.0).reshape(2, 4)
        for _ in range(4):
            with dist_autograd.context() as context_id:
                loss = rpc.rpc_sync("worker0", fwd, args=(net, x)).pow(2).sum()
                time.sleep(0.02 + 0.013 * rank)
                dist_autograd.backward(context_id, [loss])
                optim.step(context_id)
    rpc.shutdown()


if __name__ == "__main__":
    mp.spawn(work, nprocs=3)
