"""Parts of the process in which torch's agent plays a worker, each in a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import forks

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[3]


def run(code: str) -> object:
    """What a program prints as JSON; it finds `agent/main.py` as `a`."""
    program = f"import json, queue, torch\nimport rpcinspect.replayer.agent.main as a\n{code}"
    done = forks.run([sys.executable, "-B", "-c", program], timeout=120, cwd=ROOT, check=True)
    return json.loads(done.stdout)


ORDER = """
order = []
class Sink(torch.autograd.Function):
    @staticmethod
    def forward(ctx, number, x):
        ctx.number = number
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        order.append(ctx.number)
        return None, grad
agent = a.PlayedAgent.__new__(a.PlayedAgent)
agent.outs, agent.gates = {}, a.defaultdict(queue.SimpleQueue)
x = torch.ones((), requires_grad=True)
for number in range(4):
    agent.outs[0, number] = [Sink.apply(number, x)]
wanted = [2, 0, 3, 1]
leaves = agent.leaves(0, wanted)
for number in range(4):
    agent.gates[0, number].put([torch.ones(())])
(root,) = a.RecordedFunction.apply(a.tokens(1), lambda _: a.tokens(4), *leaves)
root.backward()
print(json.dumps([order, wanted]))
"""


def test_gradients_leave_in_the_order_of_the_capture() -> None:
    found = run(ORDER)
    assert isinstance(found, list)
    assert found[0] == found[1] == [2, 0, 3, 1]


def test_arguments_by_place_and_by_name() -> None:
    code = """
schema = torch._C.parse_schema("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
from rpcinspect.replayer.agent.tensors import operands
print(json.dumps([*operands(schema, ["x", "y", 2]), schema.name]))
"""
    assert run(code) == [["x", "y"], {"alpha": 2}, "aten::add"]
