"""Exceptions of the user's functions: what torch makes of them is what it makes of them without us."""

from __future__ import annotations

import json
import sys

import pytest

from tests import forks

pytest.importorskip("torch")

SENT = """
import functools, gc, json, socket, sys, weakref
import torch
import torch.distributed.rpc as rpc
from torch.distributed.rpc import internal
from rpcinspect.replayer.workers.live_errors import as_without_us

class Big:
    pass

seen = []

def fails(x):
    big = Big()
    seen.append(weakref.ref(big))
    try:
        x["none"]
    except KeyError as error:
        raise ValueError("mine") from error

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
rpc.init_rpc("w", rank=0, world_size=1,
    rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}"))
gc.disable()
results = []
for function, args in ((fails, ({},)), (torch.add, (1, "one")), (len, ([1, 2],))):
    results.append(internal._run_function(internal.PythonUDF(function, args, {})))
    results.append(as_without_us(
        functools.partial(function, *args),
        lambda call: internal._run_function(internal.PythonUDF(call, (), {})),
    ))
told = [getattr(one, "msg", one) for one in results]
kinds = [getattr(getattr(one, "exception_type", None), "__name__", None) for one in results]
print(json.dumps([told, kinds, [one() is None for one in seen]]))
rpc.shutdown()
"""
OPERATION = """
import json
import torch
from rpcinspect.replayer.workers.live_errors import watch_backward

class Fragile(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, fails):
        ctx.fails = fails
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        if ctx.fails:
            raise ValueError("in backward")
        return gradient * 3, None

told = []

def watched(operation, call):
    try:
        return call()
    except ValueError as error:
        told.append([operation, str(error)])
        raise

watch_backward(watched)
x = torch.ones(2, requires_grad=True)
Fragile.apply(x, False).sum().backward()
try:
    Fragile.apply(x, True).sum().backward()
except ValueError as error:
    told.append(str(error))
print(json.dumps([told, x.grad.tolist()]))
"""


def run(code: str) -> list[object]:
    ran = forks.run([sys.executable, "-c", code], timeout=60, check=True)
    found: list[object] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_torch_gets_the_same_exceptions_and_tracebacks() -> None:
    told, kinds, gone = run(SENT)
    assert isinstance(told, list)
    assert isinstance(kinds, list)
    assert told[0::2] == told[1::2]
    assert kinds == ["ValueError", "ValueError", "TypeError", "TypeError", None, None]
    assert "in fails" in told[0]
    assert "KeyError: 'none'" in told[0]
    assert told[4] == 2
    assert gone == [True, True]  # nothing that the function held lives longer, even without a collection


def test_backward_of_custom_operations() -> None:
    assert run(OPERATION) == [[["FragileBackward", "in backward"], "in backward"], [3.0, 3.0]]
