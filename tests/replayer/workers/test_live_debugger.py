"""Where a call stops: at the user's own function, behind torch's helpers and wrappers."""

from __future__ import annotations

import json
import sys

import pytest

from tests import forks

pytest.importorskip("torch")

IMPORT = """
import collections, functools, json, sys, operator
import torch
from torch.distributed.rpc.internal import PythonUDF
import rpcinspect.replayer.workers.called_functions as d
OWN = '''
def udf(function, *args):
    return PythonUDF(function, args, {})

class Behind:
    def __init__(self, value):
        self.value = value
    def local_value(self):
        return self.value

class Head(torch.nn.Module):
    def forward(self, x):
        return x
    def other(self):
        pass

class Made:
    def __init__(self, value):
        self.value = value

class Caller:
    def __call__(self, x):
        return x

def plain(x):
    return x

@functools.wraps(plain)
def wrapped(x):
    return plain(x)

def line(function, *args):
    code = d.code_of(d.method_behind(udf(function, *args)))
    return None if code is None else code.co_name
'''
exec(compile(OWN, "/opt/demo/job.py", "exec"))  # what has no file is nobody's
"""


def run(code: str) -> object:
    ran = forks.run([sys.executable, "-c", IMPORT + code], timeout=60, check=True)
    return json.loads(ran.stdout)


def test_the_function_of_the_user_is_found() -> None:
    found = run("""
from torch.distributed.rpc.rref_proxy import _local_invoke
def _remote_forward(module_rref, device, is_device_map_set, *args):
    return module_rref.local_value()(*args)
head = Head()
print(json.dumps([
    line(plain, 1), line(wrapped, 1), line(functools.partial(plain, 1)), line(Caller(), 1), line(head, 1),
    line(head.other), line(_local_invoke, Behind(head), "other", (), {}),
    line(_remote_forward, Behind(head), "cpu", False, 1),
    line(torch.add, 1, 2), line(operator.add, 1, 2), line(torch.nn.functional.relu, 1),
    line(torch.nn.Linear(1, 1), 1), line(_local_invoke, Behind(head), "nothing", (), {}),
    line(Made, 1), line(torch.nn.Linear, 1, 1), line(dict),
]))
""")
    assert found == [
        *("plain", "plain", "plain", "__call__", "forward", "other", "other", "forward"),
        *(None, None, None, None, None),
        *("__init__", None, None),
    ]


def test_names() -> None:
    assert run("""
print(json.dumps([d.name_of(plain), d.name_of(Head().forward), d.name_of(Caller()), d.name_of(operator.add),
                  d.context_text((3 << 48) + 5)]))
""") == ["__main__.plain", "__main__.Head.forward", "__main__.Caller", "_operator.add", "3:5"]


def test_where_a_gradient_breaks() -> None:
    """The first operation whose gradient is not finite although all that it got was."""
    assert run("""
from rpcinspect.replayer.workers.live_nonfinite import nonfinite, tensors_in, watch_graph
torch.autograd.set_detect_anomaly(True, check_nan=False)
found = []
x = torch.zeros(3, requires_grad=True)
out = (torch.sqrt(x * 2) * 3).sum()
for _ in range(2):  # once is enough
    watch_graph([out], lambda name, forward, got, made: found.append(name))
out.backward()
class Holder:
    def __init__(self):
        self.t = torch.ones(1)
print(json.dumps([found, nonfinite([x.grad]), nonfinite([torch.ones(2), torch.tensor(3)]),
                  nonfinite([torch.tensor([1.0, float("inf")])]),
                  nonfinite(["text", torch.tensor(float("nan"))]),
                  nonfinite([torch.tensor([0.0, float("inf")]).to_sparse()]),
                  len(tensors_in({"a": [torch.ones(1), (Holder(), 3)], "b": Head()}))]))
""") == [["SqrtBackward0"], "Inf", None, "Inf", "NaN", "Inf", 2]
