"""Nodes of torch's graph that carry recorded gradients, in a process of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import forks

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[3]


def run(code: str) -> object:
    """What a program prints as JSON; it finds `agent/nodes.py` as `a`."""
    program = f"import json, queue, torch\nimport rpcinspect.replayer.agent.nodes as a\n{code}"
    done = forks.run([sys.executable, "-B", "-c", program], timeout=120, cwd=ROOT, check=True)
    return json.loads(done.stdout)


GRADIENTS = """
BITS = [0x7F812345, 0xFFC00001, 0x80000000, 0x00000001, 0x7F800000, 0xFF800000]
reals = torch.tensor([b - (1 << 32) if b >> 31 else b for b in BITS], dtype=torch.int32).view(torch.float32)
wide = torch.tensor([1.5]).expand(6)
turned = torch.view_as_complex(reals.view(3, 2).clone())
halves = torch.tensor([0x7C01, -0x8000, 1], dtype=torch.int16).view(torch.float16)
sent = [reals, wide, turned, halves]
leaves = [torch.zeros_like(one, memory_format=torch.contiguous_format).requires_grad_() for one in sent]
outs = [leaf * 1 for leaf in leaves]
seen = {}
for number, out in enumerate(outs):
    out.register_hook(lambda grad, number=number: seen.__setitem__(number, grad))
gate = queue.SimpleQueue()
gate.put(sent)
(token,) = a.RecordedFunction.apply(a.tokens(1), lambda _: gate.get(), *outs)
begun = []
(root,) = a.RecordedFunction.apply(a.tokens(1), lambda _: (begun.append(1), a.tokens(1))[1], token)
root.backward()
print(json.dumps([
    begun,
    [seen[n].stride() == one.stride() for n, one in enumerate(sent)],
    [torch.equal(seen[n].contiguous().view(torch.uint8), one.contiguous().view(torch.uint8))
     for n, one in enumerate(sent)],
    seen[0].view(torch.int32).tolist() == reals.view(torch.int32).tolist(),
]))
"""


def test_a_gradient_leaves_with_its_bits_and_its_form() -> None:
    """NaN payloads, signalling NaN, -0, a denormal, infinities; expanded, complex and half ones."""
    assert run(GRADIENTS) == [[1], [True] * 4, [True] * 4, True]


def test_what_arrives_is_told_as_it_is() -> None:
    code = """
told = []
outputs = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])]
def tap(grads):
    told.append(grads)
    return a.tokens(1)
made = a.RecordedFunction.apply(outputs, tap, torch.zeros((), requires_grad=True))
torch.autograd.backward(made, [torch.tensor([5.0]).expand(2), torch.tensor([-0.0])])
(grads,) = told
print(json.dumps([[list(g.stride()) for g in grads], str(grads[1].item()), [m.requires_grad for m in made]]))
"""
    assert run(code) == [[[0], [1]], "-0.0", [True, True]]
