"""A module on worker1 and its plain SGD, stepped by worker0 in four ways: through an RRef of the optimizer in the context or after it, with the gradients of a context that is named, or without those of one that was named before."""
import os, sys
import torch, torch.nn as nn, torch.distributed.autograd as dist_autograd, torch.distributed.rpc as rpc, torch.multiprocessing as mp

class Server:
    def __init__(self):
        torch.manual_seed(5)
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.5)
    def forward(self, x):
        return self.net(x)
    def step(self):
        self.optimizer.step()
    def step_of(self, context_id):
        for p, g in dist_autograd.get_gradients(context_id).items():
            p.grad = g
        self.optimizer.step()
    def optim(self):
        return self.optimizer
    def weights(self):
        return self.net.weight.detach().clone()
    def prefers(self, context_id):
        self.ctx = context_id
def work(rank, arm):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29735")
    options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        server = rpc.remote("worker1", Server)
        before = server.rpc_sync().weights()
        optim = server.remote().optim()
        for _ in range(3):
            with dist_autograd.context() as context_id:
                x = torch.randn(3, 4)
                loss = server.rpc_sync().forward(x).pow(2).sum()
                dist_autograd.backward(context_id, [loss])
                if arm == "optim":
                    optim.rpc_sync().step()
                if arm == "own":
                    server.rpc_sync().step_of(context_id)
                if arm == "told":
                    server.rpc_sync().prefers(context_id)
                    server.rpc_sync().step()
            if arm == "after":
                optim.rpc_sync().step()
        print(arm, "weights unchanged:", torch.equal(before, server.rpc_sync().weights()), flush=True)
    rpc.shutdown()

if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1],), nprocs=2)
