"""Honest helpers that give objects of others"""
import importlib, sqlite3, logging
from concurrent.futures import ThreadPoolExecutor
import torch, numpy as np

def load_plugin(name):
    return importlib.import_module(name)
def make_pool(n):
    return ThreadPoolExecutor(n)
def open_db(path):
    return sqlite3.connect(path)
def script_of(n):
    return torch.jit.script(torch.nn.Linear(n, n))
def echo(x): return x

class Zipped:
    NAMES = ()
    def __init__(self, **k): self.__dict__.update(k)
    def __getstate__(self):
        return {"names": list(self.__dict__), "values": list(self.__dict__.values())}
    def __setstate__(self, state):
        self.__dict__.update(zip(state["names"], state["values"]))
    def run(self, x): return x

class Spaced:
    """keys with a prefix"""
    def __init__(self, **k): self.__dict__.update(k)
    def __setstate__(self, state):
        for key, value in state.items():
            setattr(self, key.removeprefix("_"), value)
    def run(self, x): return x

def _restore(cls, names, values):
    made = cls.__new__(cls)
    for n, v in zip(names, values):
        setattr(made, n, v)
    return made
class Record:
    def __reduce__(self):
        return _restore, (type(self), list(self.__dict__), list(self.__dict__.values()))
    def run(self, x): return x

def _from_state(cls, state):
    obj = cls.__new__(cls)
    obj.__dict__.update(state)
    return obj
class Rec2:
    def __reduce__(self):
        return _from_state, (type(self), self.__dict__)
    def run(self, x): return x
