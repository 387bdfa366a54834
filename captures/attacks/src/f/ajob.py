import copyreg
from dataclasses import dataclass
import torch
from torch import nn

class Plain:
    def __init__(self, lr=0.1):
        self.lr = lr
    def run(self, x):
        return x

class Own(Plain):
    def __setstate__(self, state):
        self.__dict__.update(state)
    def run(self, x):
        return x

class Net(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.a = nn.Linear(n, n)
    def forward(self, x):
        return self.a(x)

class Deep(Net):
    def __new__(cls, *a):
        return super().__new__(cls)
    def __eq__(self, o): return self is o
    def __hash__(self): return 1
    def forward(self, x):
        return x

def keep(x):
    return 1
