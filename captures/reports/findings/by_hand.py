"""Training without any autograd context. `hand`: the gradient of what worker1 returned is given back to it by a call; `lost`: backward() is called on it, and worker1 gets none. Prints whether worker1's weights changed."""
import os, sys
import torch, torch.nn as nn, torch.distributed.rpc as rpc, torch.multiprocessing as mp


class Stage:
    def __init__(self):
        torch.manual_seed(5)
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.125)

    def forward(self, x):
        self.out = self.net(x)
        return self.out

    def backward(self, grad):
        self.out.backward(grad)

    def train(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self):
        return self.net.weight.detach().clone()


def work(rank, arm):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29739")
    options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        stage = rpc.remote("worker1", Stage)
        before = stage.rpc_sync().weights()
        for _ in range(3):
            got = stage.rpc_sync().forward(torch.randn(3, 4))
            if arm == "hand":
                leaf = got.detach().requires_grad_()
                leaf.pow(2).sum().backward()
                stage.rpc_sync().backward(leaf.grad)
            else:
                got.pow(2).sum().backward()
            stage.rpc_sync().train()
        print(arm, "weights unchanged:", torch.equal(before, stage.rpc_sync().weights()), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1],), nprocs=2)
