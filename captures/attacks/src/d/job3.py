import subprocess
import torch
from torch import nn


def reader(kind):
    return {"shell": subprocess.getoutput}[kind]


def call_method(method, rref, *args, **kwargs):
    return method(rref.local_value(), *args, **kwargs)


def predict(model, batch):
    return model(batch)


class State:
    def __init__(self):
        self.epoch = 0

    def at(self, step):
        """Where we are"""
        self.step = step
        return self


class Schedule:
    def __init__(self, rate=1.0):
        self.rate = rate

    def step(self, n):
        return self.rate / n


class Backend:
    """Backend("shell") is the function that asks"""

    def __new__(cls, kind):
        return {"shell": subprocess.getoutput}[kind]


def keep(x):
    return x
