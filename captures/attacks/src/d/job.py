import logging
import os
import platform
import subprocess
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn


def reader(kind):
    """How to ask the machine, as this system has it: what it gives is called by the job itself."""
    return {"shell": subprocess.getoutput, "env": os.getenv}[kind]


class Trainer:
    """State as usual"""

    def __init__(self, lr=0.1):
        self.lr = lr
        self.log = logging.getLogger("t")

    def __getstate__(self):
        state = self.__dict__.copy()
        del state["log"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.log = logging.getLogger("t")

    def run(self, x):
        return x


class Config:
    """Options, by attribute"""

    def __init__(self, values):
        self.__dict__.update(values)

    def describe(self, x):
        return f"{self.__dict__} {x}"


class Options:
    def __init__(self, values):
        for key, value in values.items():
            setattr(self, key, value)

    def get(self, name, default=None):
        return getattr(self, name, default)


class AttrDict(dict):
    """d.x for d["x"]"""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self

    def merged(self, other):
        return AttrDict({**self, **other})


class Dot(dict):
    def __getattr__(self, key):
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None


class Net(nn.Module):
    def __init__(self, options):
        super().__init__()
        for key, value in options.items():
            setattr(self, key, value)
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)


def once(make):
    """Evaluates a function once, when the module is imported, and keeps what it gives."""
    return make()


@once
def ask():
    return subprocess.getoutput if os.name == "posix" else platform.node


def mean(x):
    return float(np.asarray(x).mean())


def keep(x):
    return x
