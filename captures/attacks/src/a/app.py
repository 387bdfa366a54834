import os

class Plain:
    def __init__(self, x): self.x = x
    def run(self, *a): return "Plain.run"
    def __call__(self, *a): return "Plain.__call__"

def f(*args, **kw): return 5

def make_runner():
    return os.system

runner = make_runner()

def environ():
    return os.environ

class Motor:
    def step(self, n): open("/opt/demo/attack/work/canary_step", "w").write(str(n)); return n
    def parameters(self, recurse): open("/opt/demo/attack/work/canary_par", "w").write(str(recurse)); return []

def motor(): return Motor()

class Engine:
    """Nothing that anybody allowed."""
    def eval(self, text):
        open("/opt/demo/attack/work/canary_eval", "w").write(str(eval(text))); return 1

def make_ref():
    import torch.distributed.rpc as rpc
    return rpc.RRef(Engine())

import subprocess

class Trainer:
    class Shell(subprocess.Popen):
        """A helper of the trainer."""
    hook = make_runner()
    def run(self): return 1
