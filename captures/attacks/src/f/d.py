"""Plugins travel by reference"""
import importlib
def _load(module, name):
    return getattr(importlib.import_module(module), name)
class Plugin:
    def __init__(self, module, name):
        self.module, self.name = module, name
    def __reduce__(self):
        return _load, (self.module, self.name)
def apply(fn, *args):
    """runs a task here"""
    return fn(*args)
class Step:
    def __init__(self, fn): self.fn = fn
    def __call__(self, *a): return self.fn(*a)
