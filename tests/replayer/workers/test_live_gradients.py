"""What is shown of gradients in a live worker, and what their parameters are called."""

from __future__ import annotations

import json
import struct
import sys

import pytest

from tests import forks

IMPORT = "import sys, json; import rpcinspect.replayer.workers.live_gradients as g\n"


def run(code: str, *arguments: str) -> object:
    """What a program prints as JSON; it finds `live_gradients` as `g`."""
    done = forks.run([sys.executable, "-c", IMPORT + code, *arguments], timeout=60, check=True)
    return json.loads(done.stdout)


GRADIENTS = """
import torch, base64
import torch.distributed.autograd as dist_autograd
dist_autograd._init(0)
weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
table = torch.nn.Embedding(3, 2, sparse=True)
half = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
complex_leaf = torch.tensor([[1 + 2j]], requires_grad=True)
out = (weight * weight).sum() + table(torch.tensor([2, 2])).sum() + half.sum().float()
out = out + (complex_leaf * complex_leaf.conj()).real.sum()
with dist_autograd.context() as context_id:
    dist_autograd.backward(context_id, [out])
    if len(sys.argv) > 1:
        g.GRADIENT_BYTES = int(sys.argv[1])
    shown, blob = g.show_gradients(context_id)
unknown = g.show_gradients(12345)
print(json.dumps([shown, base64.b16encode(blob).decode(), unknown[0]]))
"""


def test_gradients_as_they_are_shown() -> None:
    pytest.importorskip("torch")
    found = run(GRADIENTS)
    assert isinstance(found, list)
    shown, blob, unknown = found
    assert [(row["dtype"], row["shape"], row["layout"], row["parameter"]) for row in shown["gradients"]] == [
        ("float32", [3, 2], "sparse_coo", True),
        ("complex64", [1, 1], "strided", False),
        ("float32", [2], "strided", True),
        ("bfloat16", [3], "strided", False),
    ]
    assert bytes.fromhex(blob) == (
        struct.pack("<6f", 0, 0, 0, 0, 2.0, 2.0)
        + struct.pack("<2f", 2.0, 4.0)  # 2 x, of x = 1 + 2i
        + struct.pack("<2f", 2.0, -4.0)
        + b"\x80\x3f" * 3
    )
    assert "12345" in unknown["error"]
    assert [row["name"] for row in shown["gradients"]] == ["Embedding.weight", None, None, None]


def test_too_many_gradients_are_named_only() -> None:
    pytest.importorskip("torch")
    found = run(GRADIENTS, "16")
    assert isinstance(found, list)
    assert [row["bytes"] for row in found[0]["gradients"]] == [None, 8, 8, None]
    assert len(bytes.fromhex(found[1])) == 16


NAMES = """
import torch
class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 3)
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.scale = torch.nn.Parameter(torch.ones(2))
class Odd:
    @property
    def __class__(self):
        raise RuntimeError("nobody asks me")
odd = Odd()
one, two, tied = Outer(), Outer(), torch.nn.Linear(2, 3)
tied.weight = one.inner.fc.weight
names = g.names_of_parameters()
known = [(one.scale, one.inner.fc.bias), (two.scale, two.inner.fc.weight)]
print(json.dumps([[names[id(p)] for p in pair] for pair in known] + [names[id(tied.weight)]]))
"""


def test_parameters_are_called_by_the_outermost_module() -> None:
    pytest.importorskip("torch")
    assert run(NAMES) == [
        ["Outer.scale", "Outer.inner.fc.bias"],
        ["Outer(2).scale", "Outer(2).inner.fc.weight"],
        "Outer.inner.fc.weight",
    ]
