"""What draws random numbers, as source files tell it; and the note of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.replayer.planning.random_numbers import draws
from rpcinspect.replayer.planning.sources import Sources
from tests.cli.runner import rpcinspect
from tests.places import recorded

SOURCE = """
import random
import torch
from torch import nn
from torch.nn import Linear as Dense
import torch.nn.functional as F

class Layer(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(2, 2)

class Wrapper(nn.Module):
    def __init__(self):
        self.inner = Layer()

def make(kind):
    return Wrapper()

def forward(layer, x):
    return F.dropout(layer(x), 0.5)

def pick(items):
    return random.choice(items)

def add(a, b):
    return a + b

def count(layer):
    return isinstance(layer, nn.Linear) + sum(layer.normal) + layer.sample()

def choice(items):
    return items[0]

def chosen(items):
    return choice(items)

def seeded(x):
    torch.manual_seed(3)
    return make("a")

def filled(x):
    return x.normal_()

def renamed():
    return Dense(3, 3)

class Plain:
    def run(self, x):
        return add(x, x)
"""


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    (tmp_path / "model.py").write_text(SOURCE)
    return Sources(paths=[tmp_path])


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("Layer", "Linear"),
        ("Wrapper", "Linear"),
        ("make", "Linear"),
        ("forward", "dropout"),
        ("pick", "choice"),
        ("add", None),
        ("count", None),
        ("chosen", None),
        ("seeded", None),
        ("filled", "normal_"),
        ("renamed", "Linear"),
        ("Plain", None),
        ("Plain.run", None),
        ("absent", None),
    ],
)
def test_definitions_of_a_file(name: str, drawn: str | None, sources: Sources) -> None:
    assert draws("model", name, sources) == drawn


@pytest.mark.parametrize(
    ("module", "name", "drawn"),
    [
        ("torch.nn.modules.linear", "Linear", "Linear"),
        ("torch.nn.modules.activation", "ReLU", None),
        ("torch", "randn", "randn"),
        ("elsewhere", "Linear", None),
    ],
)
def test_names_of_others(module: str, name: str, drawn: str | None, sources: Sources) -> None:
    assert draws(module, name, sources) == drawn


def test_the_plan_of_a_job_with_random_weights() -> None:
    """ps makes an nn.Linear that nobody seeded; the trainer uses it in five calls."""
    capture = recorded("reports/state/random_weights.rpclog")
    source = ("--path", capture.parent, "--main", capture.parent / "random_weights.py")
    told = "note: Random numbers may be drawn for #4 (make: Linear); 5 more requests use what these make"
    assert told in rpcinspect("replay", capture, *source, "--plan").out


def test_nothing_is_said_without_sources() -> None:
    ran = rpcinspect("replay", recorded("reports/state/random_weights.rpclog"), "--trust-capture", "--plan")
    assert "Random numbers" not in ran.out
