# ruff: noqa
"""A user's module, as `--path` finds it: what it defines, imports, inherits and aliases."""

import dataclasses
import enum
import typing

import canary
import torch
from canary import fire
from canary import fire as under_another_name


def step(*args, **kwargs):
    return args


def twice(x, *args):
    return x


def _hidden(*args):
    return None


@torch.no_grad()
def without_grad(*args):
    return args


@canary.decorate
def decorated(*args):
    return None


square = lambda x, *args: x
alias = canary.fire
alias_of_alias = under_another_name
own_alias = step
table = {"fire": canary.fire}
number = 3


@torch.jit.script
def scripted(x: int) -> int:
    return x + 1


@torch.jit.script
class Thing:
    def __init__(self, x: int):
        self.x = x


class Net(torch.nn.Module):
    def __init__(self, *args):
        super().__init__()

    def forward(self, *args):
        return args


class Item(canary.Base):
    go = canary.fire
    shout = staticmethod(canary.fire)

    def __init__(self, *args):
        self.args = args

    def run(self, *args):
        return args

    def _secret(self, *args):
        return None

    def __call__(self, *args):
        return args

    @property
    def name(self):
        return "item"

    @classmethod
    def make(cls, *args):
        return None

    @staticmethod
    def static(*args):
        return None

    class Inner:
        def deep(self, *args):
            return None


class Server:
    """Inherits from nobody."""

    def __init__(self, *args):
        self.args = args

    def run(self, *args):
        return args

    def __call__(self, *args):
        return args

    @classmethod
    def make(cls, *args):
        return None

    @staticmethod
    def static(*args):
        return None


class Plain:
    """Gets its state by BUILD."""


class Bare(canary.Base):
    """Defines nothing itself."""


class Stateful:
    def __setstate__(self, state):
        self.state = state

    def __reduce__(self):
        return Stateful, (), {}


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(typing.NamedTuple):
    left: object
    right: object


@dataclasses.dataclass
class Record:
    x: object = None
    y: object = None


class Words(list):
    pass


class Table(dict):
    pass


if number == 3:

    def conditional(*args):
        return None
else:
    from canary import fire as conditional


def replaced(*args):
    return None


from canary import fire as replaced


def deleted(*args):
    return None


del deleted
item = Item()


def __getattr__(name):
    if name == "made_up":
        return canary.fire
    raise AttributeError(name)
