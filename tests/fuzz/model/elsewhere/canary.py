"""A library that is not the user's: nobody allows anything of it. Whatever runs here runs by a hole."""

import torch


def fire(*args, **kwargs):
    return None


class Base:
    def __init__(self, *args, **kwargs):
        pass

    def inherited(self, *args, **kwargs):
        return None

    @classmethod
    def inherited_class(cls, *args, **kwargs):
        return None

    @staticmethod
    def inherited_static(*args, **kwargs):
        return None

    @property
    def inherited_property(self):
        return fire


class Other:
    def other(self, *args, **kwargs):
        return None


def decorate(function):
    """Gives something else in the function's place."""
    return fire


@torch.jit.script
def scripted(x: int) -> str:
    return "canary ran"


@torch.jit.script
class Thing:
    def __init__(self, x: int):
        self.x = x
