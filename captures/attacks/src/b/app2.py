import os
from dataclasses import dataclass
from typing import Callable, NamedTuple
import subprocess as sp

class Plain:
    def __init__(self, x): self.x = x
    def run(self, *a): return "Plain.run"

def f(*args, **kw): return 5

def make_runner():
    return os.system

runner = make_runner()

# the builtin is kept before it is overridden, as jobs do for print
_eval = eval
_open = open

def eval(model, data):
    return model

def open(path, mode="r"):
    return _open(path, mode)

def default(x): return x

@dataclass
class Task:
    name: str
    fn: Callable = default

class Job(NamedTuple):
    name: str
    fn: Callable = default

class Settings:
    """A singleton"""
    _the = None
    def __new__(cls):
        if cls._the is None:
            cls._the = super().__new__(cls)
            cls._the.command = "true"
        return cls._the

def save():
    return os.system(Settings().command)
