"""A job of three workers whose loss is NaN at step 3: `make demo` records it.

    python train.py            # as it is
    FIXED=1 python train.py    # with the line at fault mended

worker0 has the data and drives, worker1 and worker2 hold a layer each. From step 2 on, the last rows of a batch are
padding. All that a layer computes is elementwise and without rounding that a processor may choose, so that it gives
the same bits on each machine.
"""

import os

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

STEPS, LEARNING_RATE = 4, 0.125
FLOOR = 1e-20 if "FIXED" in os.environ else 0.0


class Layer:
    """A weight in its worker's memory."""

    def __init__(self, first, step):
        self.weight = numbers(first, step).requires_grad_()


def numbers(first, step):
    return (torch.arange(24) * step + first).reshape(6, 4)


def scale(layer, x):
    return x * layer.local_value().weight


def compress(layer, hidden):
    out = hidden * layer.local_value().weight
    return out.sign() * torch.sqrt(out.abs() + FLOOR)  # the derivative of the square root at 0 is infinite


def learn(layer, context_id):
    weight = layer.local_value().weight
    with torch.no_grad():
        weight -= LEARNING_RATE * dist_autograd.get_gradients(context_id)[weight]


def batch(step):
    x = numbers(0.5, 1 / 16)
    if step >= 2:
        x[4:] = 0  # padding
    return x


def train():
    first = rpc.remote("worker1", Layer, args=(0.5, 1 / 32))
    second = rpc.remote("worker2", Layer, args=(1, 1 / 16))
    for step in range(STEPS):
        with dist_autograd.context() as context_id:
            hidden = rpc.rpc_sync("worker1", scale, args=(first, batch(step)))
            out = rpc.rpc_sync("worker2", compress, args=(second, hidden))
            loss = (out - 1).pow(2).sum()
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
            dist_autograd.backward(context_id, [loss])
            steps = [rpc.rpc_async(layer.owner(), learn, args=(layer, context_id)) for layer in (first, second)]
            torch.futures.wait_all(steps)


def work(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29711"))
    torch.set_num_threads(1)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=3)
    if rank == 0:
        train()
    rpc.shutdown()


if __name__ == "__main__":
    mp.start_processes(work, nprocs=3, start_method="fork")
