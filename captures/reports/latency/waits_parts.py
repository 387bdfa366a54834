"""What the workers of waits.py run: each says how long it slept, and for what."""

import json
import time

import torch
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.nn import RemoteModule


def rest(ms, what):
    time.sleep(ms / 1000)
    print(json.dumps({"worker": rpc.get_worker_info().name, "ms": ms, "what": what}), flush=True)


class Slow(torch.autograd.Function):
    """Gives what it gets; its backward pass takes a while."""

    @staticmethod
    def forward(ctx, x, ms, what):
        ctx.ms, ctx.what = ms, what
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        rest(ctx.ms, ctx.what)
        return gradient, None, None


def inner(x):
    rest(25, "inner")
    return Slow.apply(x, 80, "inner, backward") * 2


def outer(x):
    rest(10, "outer")
    y = rpc.rpc_sync("w2", inner, (Slow.apply(x, 60, "outer, backward after inner"),))
    return Slow.apply(y, 40, "outer, backward before inner")


def slow(x, ms):
    rest(ms, "slow")
    return x + 1


@rpc.functions.async_execution
def later(x):
    def after(future):
        rest(15, "later, after slow")
        return future.wait()

    return rpc.rpc_async("w2", slow, (x, 40)).then(after)


def use(rref, ms):
    x = rref.to_here()
    rest(ms, "use")
    return x + 1


class Inner(nn.Module):
    def forward(self, x):
        rest(45, "Inner")
        return x + 1


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = [RemoteModule("w2/cpu", Inner)]  # as a child it could not be moved to a device

    def forward(self, x):
        rest(20, "Outer, before Inner")
        y = self.inner[0].forward(x)
        rest(10, "Outer, after Inner")
        return y


class Counter:
    def __init__(self, ms):
        self.ms = ms

    def tick(self, x):
        rest(self.ms, f"{type(self).__name__}.tick")
        return x


class Fast(Counter):
    def tick(self, x):
        rest(1, "Fast.tick")
        return x


def make_counter(ms):
    return Counter(ms)


def _call_method(method, rref, *args):
    return method(rref.local_value(), *args)
