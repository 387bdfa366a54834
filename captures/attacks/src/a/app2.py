from typing import Tuple
import torch

@torch.jit.script
def pair(p: Tuple[int, int]) -> int:
    a, b = p
    return a + b

@torch.jit.script
class Box:
    def __init__(self, a: int, b: int, c: int, t: torch.Tensor):
        self.a = a; self.b = b; self.c = c; self.t = t

@torch.jit.script
class Tiny:
    def __init__(self, a: int):
        self.a = a

@torch.jit.script
def use(b: Box) -> torch.Tensor:
    return b.t + b.c

@torch.jit.script
def make_tiny(a: int) -> Tiny:
    return Tiny(a)

def update(param, grad, decay):
    """An optimizer's step: weight decay, then the (sparse) gradient."""
    param.mul_(decay)
    param.add_(grad, alpha=-0.1)
    return 1

def look(param, grad, decay):
    a = (param.data_ptr(), grad._indices().data_ptr(), grad._indices().tolist(), param.tolist(), grad.is_coalesced())
    param.mul_(decay)
    return str((a, grad._indices().tolist(), param.tolist()))
