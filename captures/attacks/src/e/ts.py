import torch
from typing import Tuple, List, Optional, Dict
from torch import Tensor

@torch.jit.script
def pair(p: Tuple[int, int]) -> int:
    a, b = p
    return a + b

@torch.jit.script
def five(p: Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    a, b, c, d, e = p
    return a + b + c + d + e

@torch.jit.script
def make(n: int, dtype: int) -> Tensor:
    return torch.zeros([n], dtype=dtype)

@torch.jit.script
def cast(n: int, dtype: int) -> Tensor:
    return torch.zeros([n]).to(dtype)

@torch.jit.script
def lookup(table: Tensor, rows: Tensor) -> Tensor:
    return torch.nn.functional.embedding(rows, table)

@torch.jit.script
def loop(n: int, xs: List[int]) -> int:
    s = 0
    for x in xs:
        s += x
    return s + n
@torch.jit.script
def opt(x: Optional[Tensor], d: Dict[str, Tensor]) -> int:
    if x is not None:
        return x.size(0)
    return len(d)
