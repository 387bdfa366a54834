"""Whose code a name of the user's stands for, one way of binding it after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.replay.planning.sources import Sources

HEAD = """
import abc, collections, contextlib, dataclasses, enum, functools, os, subprocess, typing
import torch, torch.nn as nn, torch.distributed.rpc as rpc
from torch.distributed.rpc.functions import async_execution
def own(x): ...
class Own:
    def run(self): ...
    @classmethod
    def make(cls): ...
class Callable(Own):
    def __call__(self): ...
class Foreign(subprocess.Popen): ...
"""

NAMES: dict[str, tuple[str, str]] = {
    # how `x` is bound → what it is
    "literals": ("x = 1, -2.5, 'a' * 3, [None, {'k': (True, b'')}], f'{os.getcwd()}', ...", "value"),
    "lambda": ("x = lambda a: os.system(a)", "function"),
    "a container of one's own": ("x = {'a': own, 'b': [Own, lambda: 1]}", "value"),
    "a container of others'": ("x = {'a': os.system}", "alias os.system"),
    "what one's own returns": ("x = own(os)", "value"),
    "an object of one's own": ("x = Own()", "value"),
    "an object that is called": ("x = Callable()", "value"),
    "an object of others'": (
        "x = Foreign('x')",
        "alias an object of Foreign, which inherits from subprocess.Popen",
    ),
    "a class method's": ("x = Own.make()", "value"),
    "another name of one's own": ("x = own", "function"),
    "a method of one's own": ("x = Own.run", "function"),
    "others'": ("x = subprocess.getoutput", "alias subprocess.getoutput"),
    "a module": ("x = subprocess", "alias subprocess"),
    "a builtin": ("x = eval", "alias eval"),
    "others' call": ("x = os.popen('x')", "alias os.popen('x')"),
    "an item": ("x = sys.modules['os']", "alias sys.modules['os']"),
    "an import": ("from os import system as x", "alias os.system"),
    "an import of a module": ("import os.path as x", "alias os.path"),
    "after def": ("def x(): ...\nx = os.system", "alias os.system"),
    "before def": ("x = os.system\ndef x(): ...", "alias os.system"),
    "import after def": ("def x(): ...\nfrom os import system as x", "alias os.system"),
    "a fallback": ("try:\n from fast import x\nexcept ImportError:\n def x(): ...", "alias fast.x"),
    "one or the other": ("if own(1):\n def x(): ...\nelse:\n x = None", "function"),
    "either": ("x = own if own(1) else subprocess.run", "alias subprocess.run"),
    "or": ("x = None or own", "function"),
    "walrus": ("if (x := os.system): ...", "alias os.system"),
    "a loop": ("def x(): ...\nfor x in [os.system]: ...", "alias changed in line 14"),
    "with": ("def x(): ...\nwith own(1) as x: ...", "alias changed in line 14"),
    "except": ("def x(): ...\ntry: ...\nexcept E as x: ...", "alias changed in line 15"),
    "match": ("def x(): ...\nmatch os.system:\n case x: ...", "alias changed in line 15"),
    "del": ("def x(): ...\ndel x", "alias changed in line 14"),
    "augmented": ("def x(): ...\nx += 1", "alias changed in line 14"),
    "global": (
        "def x(): ...\ndef setup():\n global x\n x = subprocess.call",
        "alias changed in line 16",
    ),
    "unpacked": ("x, y = own, os.system", "function"),
    "unpacked from others": ("y, x = own, os.system", "alias os.system"),
    "unpacked from what is not shown": ("x, y = own(1)", "alias changed in line 13"),
    "a chain": ("x = y = lambda: 1", "function"),
    "declared": ("x: int", "None"),
    "annotated": ("x: int = 1", "value"),
    "itself": ("x = x", "alias itself"),
    "each other": ("x = y\ny = x", "alias itself"),
    "scripted": ("x = torch.jit.script(own)", "function"),
    "scripted and asynchronous": ("x = rpc.functions.async_execution(torch.jit.script(own))", "function"),
    "scripted of others'": ("x = torch.jit.script(os.system)", "alias torch.jit.script(os.system)"),
    "partial": ("x = functools.partial(own, 1)", "function"),
    "partial of a class": ("x = functools.partial(Own)", "value"),
    "partial of others'": (
        "x = functools.partial(subprocess.run, own)",
        "alias functools.partial(subprocess.run, own)",
    ),
    "partial of others' class": (
        "x = functools.partial(Foreign)",
        "alias functools.partial(Foreign)",
    ),
    "a decorator's call": ("x = torch.no_grad()(own)", "function"),
    "a sentinel": ("x = object()", "value"),
    "a dict by call": ("x = dict(a=own)", "value"),
    "a dict by call of others'": ("x = dict(a=os.system)", "alias os.system"),
    "NewType": ("x = typing.NewType('x', int)", "value"),
    "TypeVar": ("x = typing.TypeVar('x', bound=Own)", "value"),
    "namedtuple": ("x = collections.namedtuple('x', 'a b')", "class"),
    "an enumeration by call": ("x = enum.Enum('x', 'A B')", "class"),
    "the class itself": ("x = Own", "class"),
    "decorated": ("@rpc.functions.async_execution\n@torch.jit.script\ndef x(): ...", "function"),
    "imported decorator": ("@async_execution\ndef x(): ...", "function"),
    "decorated with arguments": ("@functools.lru_cache(maxsize=None)\ndef x(): ...", "function"),
    "own decorator": ("@own\ndef x(): ...", "function"),
    "own decorator with arguments": ("@own(1)\ndef x(): ...", "function"),
    "own class as decorator": ("@Callable\ndef x(): ...", "function"),
    "others' decorator": ("@click.command()\ndef x(): ...", "alias decorated by click.command"),
    "others' class as decorator": (
        "@Foreign\ndef x(): ...",
        "alias decorated by an object of Foreign, which inherits from subprocess.Popen",
    ),
    "partial as decorator": (
        "@functools.partial(subprocess.run)\ndef x(): ...",
        "alias decorated by functools.partial",
    ),
    "dataclass": ("@dataclasses.dataclass(frozen=True)\nclass x: ...", "class"),
    "decorated class": ("@own\nclass x: ...", "alias decorated by own"),
    "metaclass": ("class x(metaclass=abc.ABCMeta): ...", "class"),
    "own metaclass": ("class M(type): ...\nclass x(metaclass=M): ...", "class"),
    "others' metaclass": ("class x(metaclass=own): ...", "alias made by the metaclass own"),
    "a class twice": ("try:\n class x: ...\nexcept E:\n class x: ...", "class"),
    "a class wrapped": ("class x: ...\nx = own(x)", "alias a class, or something else"),
    "__getattr__": (
        "def __getattr__(name): ...\nif own(1):\n def x(): ...",
        "alias perhaps what __getattr__ gives",
    ),
    "__getattr__ and always": ("def __getattr__(name): ...\ndef x(): ...", "function"),
    "star before": ("from os import *\ndef x(): ...", "function"),
    "star after": ("def x(): ...\nfrom os import *", "alias perhaps of from os import *"),
    "star or def": (
        "if own(1):\n from os import *\nelse:\n def x(): ...",
        "alias perhaps of from os import *",
    ),
    "a builtin with star": ("from os import *\nclass x(ValueError): ...", "class"),
}


@pytest.mark.parametrize("how", NAMES)
def test_names_of_a_module(how: str, tmp_path: Path) -> None:
    source, expected = NAMES[how]
    assert said(tmp_path, HEAD + source, "x") == expected


def said(folder: Path, source: str, name: str) -> str:
    """How a file defines a name: its kind, and what an alias is."""
    (folder / "job.py").write_text(source)
    found = Sources(None, [folder]).find("job", name)
    return "None" if found is None else " ".join((found.kind, found.of)).strip()
