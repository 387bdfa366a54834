"""Whose code a name of the user's stands for, one way of binding it after the other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, settings

from rpcinspect.replayer.planning.sources import Sources
from tests.replayer.planning.made_up_modules import ASKED, FOREIGN, modules
from tests.thorough import examples

HEAD = """
import abc, collections, contextlib, dataclasses, enum, functools, os, subprocess, typing
import torch, torch.nn as nn, torch.distributed.rpc as rpc
from torch.distributed.rpc.functions import async_execution
def own(x): ...
def timed(function): return function
def retry(times):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args): return function(*args)
        return wrapper
    return decorate
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
    "a loop": ("def x(): ...\nfor x in [os.system]: ...", "alias changed in line 21"),
    "with": ("def x(): ...\nwith own(1) as x: ...", "alias changed in line 21"),
    "except": ("def x(): ...\ntry: ...\nexcept E as x: ...", "alias changed in line 22"),
    "match": ("def x(): ...\nmatch os.system:\n case x: ...", "alias changed in line 22"),
    "del": ("def x(): ...\ndel x", "alias changed in line 21"),
    "augmented": ("def x(): ...\nx += 1", "alias changed in line 21"),
    "global": (
        "def x(): ...\ndef setup():\n global x\n x = subprocess.call",
        "alias changed in line 23",
    ),
    "unpacked": ("x, y = own, os.system", "function"),
    "unpacked from others": ("y, x = own, os.system", "alias os.system"),
    "unpacked from what is not shown": ("x, y = own(1)", "alias changed in line 20"),
    "a chain": ("x = y = lambda: 1", "function"),
    "declared": ("x: int", "None"),
    "annotated": ("x: int = 1", "value"),
    "itself": ("x = x", "alias itself"),
    "each other": ("x = y\ny = x", "alias itself"),
    "scripted": ("x = torch.jit.script(own)", "function"),
    "scripted and asynchronous": ("x = rpc.functions.async_execution(torch.jit.script(own))", "function"),
    "scripted of others'": ("x = torch.jit.script(os.system)", "alias torch.jit.script(os.system)"),
    "partial": ("x = functools.partial(own, 1)", "function"),
    "partial of a class": ("x = functools.partial(Own)", "alias functools.partial(Own)"),
    "partial of others'": (
        "x = functools.partial(subprocess.run, own)",
        "alias functools.partial(subprocess.run, own)",
    ),
    "partial of others' class": (
        "x = functools.partial(Foreign)",
        "alias functools.partial(Foreign)",
    ),
    "a number that is kept": (
        "def y(): ...\nif own(1):\n y = 8\nx = functools.lru_cache(y)",
        "alias functools.lru_cache(y)",
    ),
    "partial of what may be None": (
        "y = own if own(1) else None\nx = functools.partial(y)",
        "alias functools.partial(y)",
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
    "own decorator": ("@timed\ndef x(): ...", "function"),
    "own decorator with arguments": ("@retry(3)\ndef x(): ...", "function"),
    "own decorator that gives something else": (
        "def once(make): return make()\n@once\ndef x(): ...",
        "alias decorated by once, which may give what is no function",
    ),
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
        "alias what __getattr__ gives",
    ),
    "__getattr__ and always": ("def __getattr__(name): ...\ndef x(): ...", "function"),
    "star before": ("from os import *\ndef x(): ...", "function"),
    "star after": ("def x(): ...\nfrom os import *", "alias what 'from os import *' gives"),
    "star or def": (
        "if own(1):\n from os import *\nelse:\n def x(): ...",
        "alias what 'from os import *' gives",
    ),
    "a builtin with star": ("from os import *\nclass x(ValueError): ...", "class"),
    "wrapped again": ("def x(): ...\nx = torch.jit.script(x)", "function"),
    "wrapped by others": ("def x(): ...\nx = os.fspath(x)", "alias os.fspath(x)"),
    "either of two releases'": (
        "if C:\n from typing import final as f\nelse:\n from torch import no_grad as f\n@f\ndef x(): ...",
        "function",
    ),
    "a decorator that may be absent": (
        "try:\n import torch\nexcept ImportError:\n torch = None\n@torch.no_grad()\ndef x(): ...",
        "function",
    ),
    "a list after all": ("def x(): ...\ny = x\nx = [y, os.system]", "alias os.system"),
    "through a list": ("def y(): ...\nx = y\ny = [x, os.system]", "alias itself"),
    "a module's other name": ("n = torch.nn\nclass x(n.Module): ...", "class"),
    "an import before a star": (
        "from torch import no_grad\nfrom helper import *\n@no_grad()\ndef x(): ...",
        "alias decorated by what 'from helper import *' gives",
    ),
}


@pytest.mark.parametrize("how", NAMES)
def test_names_of_a_module(how: str, tmp_path: Path) -> None:
    source, expected = NAMES[how]
    assert said(tmp_path, HEAD + source, "x") == expected


CLASSES = """
import abc, collections, enum, functools, os, subprocess, typing, torch
from torch import nn
from lib import Base, Mixin as Foreign, deco
def own(x): ...
class Plain:
    def a(self): ...
    @staticmethod
    def b(): ...
    @property
    def c(self): ...
    @torch.no_grad()
    def d(self): ...
    def e(self): ...
    def __private(self): ...
    _ = own
class Child(Plain):
    def e(self): ...
class Mixed(Plain, subprocess.Popen): ...
class Behind(subprocess.Popen, Plain): ...
class Diamond(Plain):
    def e(self): ...
class Both(Child, Diamond): ...
class Hidden(Mixed, Diamond): ...
class Net(nn.Module):
    def forward(self, x): ...
class Bare(nn.Module): ...
class Box(nn.Sequential): ...
class Made(torch.autograd.Function):
    @staticmethod
    def forward(ctx): ...
class Unmade(torch.autograd.Function): ...
class T(typing.Generic[typing.TypeVar("V")], abc.ABC, Plain): ...
class Meta(type):
    def own_meta(cls): ...
class WithMeta(Plain, metaclass=Meta): ...
class Aliases:
    run = os.system
    go = own
    field: int = 3
    declared: int
    from os import getcwd
    with own(1) as opened: ...
    def setter(self): self.late = os.system; self.early = self.go
    def late(self): ...
    def early(self): ...
    def patched(self): ...
    def deleted(self): ...
    def counted(self): ...
    call = functools.partial(own, 1)
    prop = property(own)
    class Inner:
        def deep(self): ...
        down = os.system
Aliases.patched = os.system
Aliases.added = own
del Aliases.deleted
class Declares(Plain):
    a: typing.Any
class Sometimes(subprocess.Popen):
    if own(1):
        def wait(self): ...
    def kill(self): ...
class Looks(Plain):
    def __getattribute__(self, name): ...
class Turns(Plain):
    def turn(self): self.__class__ = subprocess.Popen
class Rebased(Plain): ...
Rebased.__bases__ = (subprocess.Popen,)
class Items(Plain):
    def __class_getitem__(cls, x): return subprocess.Popen
class Subscripted(Items[1]): ...
@deco
class Decorated:
    def a(self): ...
class OfDecorated(Decorated):
    def b(self): ...
class Color(str, enum.Enum):
    RED = "r"
    RUN = os.system
    AUTO = enum.auto()
    def hue(self): ...
Point = collections.namedtuple("Point", "x y")
class Twice:
    def a(self): ...
class Twice(subprocess.Popen): ...
Other = Plain
"""
INHERITED = "alias inherited from subprocess.Popen"
MEMBERS = {
    **dict.fromkeys(("Plain.a", "Plain.b", "Plain.d", "Plain._", "Plain._Plain__private"), "function"),
    **dict.fromkeys(("Plain.__private", "Plain.absent", "Plain.mro", "Plain.__init__", "Plain.a.b"), "None"),
    "Plain.c": "alias decorated by property",
    **dict.fromkeys(("Child.a", "Child.e", "Both.e", "Both.a", "Mixed.a", "Hidden.e", "Other.a"), "function"),
    **dict.fromkeys(("Mixed.communicate", "Behind.a", "Behind.__init__"), INHERITED),
    "Hidden.communicate": INHERITED,
    **dict.fromkeys(
        ("Net.forward", "Net.parameters", "Net.train", "Net.__call__", "Box.forward"), "function"
    ),
    **dict.fromkeys(
        ("Net.apply", "Net.register_forward_hook", "Net.absent"), "alias inherited from torch.nn.Module"
    ),
    **dict.fromkeys(("Bare.__call__", "Bare.forward"), "alias inherited from torch.nn.Module"),
    "Box.append": "alias inherited from torch.nn.Sequential",
    "Made.apply": "function",
    "Unmade.apply": "alias inherited from torch.autograd.Function",
    **dict.fromkeys(("T.a", "WithMeta.a", "Meta.own_meta"), "function"),
    "WithMeta.own_meta": "None",
    "Aliases.run": "alias os.system",
    **dict.fromkeys(("Aliases.go", "Aliases.added", "Aliases.early", "Aliases.call"), "function"),
    "Aliases.field": "alias changed in line 40",
    "Aliases.declared": "None",
    "Aliases.getcwd": "alias os.getcwd",
    "Aliases.opened": "alias changed in line 43",
    **dict.fromkeys(("Aliases.late", "Aliases.patched"), "alias os.system"),
    "Aliases.deleted": "alias changed in line 57",
    "Aliases.prop": "alias property(own)",
    "Aliases.Inner": "class",
    "Aliases.Inner.deep": "function",
    "Aliases.Inner.down": "alias os.system",
    "Declares.a": "alias changed in line 59",
    "Sometimes.wait": INHERITED,
    "Sometimes.kill": "function",
    "Looks.a": "alias what __getattribute__ gives",
    "Turns.a": "alias of a class with __class__",
    "Rebased.a": "alias inherited from bases that are changed",
    "Subscripted.a": "alias inherited from Items[1]",
    "Decorated.a": "alias decorated by lib.deco",
    "OfDecorated.a": "alias inherited from Decorated",
    "OfDecorated.b": "function",
    **dict.fromkeys(("Color.RED", "Color.AUTO"), "value"),
    "Color.RUN": "alias os.system",
    "Color.hue": "function",
    "Color.upper": "alias inherited from builtins.str",
    "Point": "class",
    "Point._make": "alias inherited from collections.namedtuple",
    "Twice.a": INHERITED,
    "Twice": "class",
    "Base.a": "alias lib.Base.a",
}


@pytest.mark.parametrize("name", MEMBERS)
def test_names_of_classes(name: str, tmp_path: Path) -> None:
    assert said(tmp_path, CLASSES, name) == MEMBERS[name]


PATCHES = """
import os
def own(x): ...
class Patched:
    def a(self): ...
    def b(self): ...
    def c(self): ...
    def d(self): ...
    def e(self, x): x.e = os.system
    def f(self): ...
    def g(self, ctx): ctx.g = 1
    def h(self): ...
def patches(cls, obj):
    cls.a = os.system
    for obj.b in own(1): ...
    Renamed.c = lambda: 1
    Plain.d = os.system
    obj.f = obj
Renamed = Patched
Renamed.h = own
Renamed.added = own
Patched.more = own
class OfPatched(Patched): ...
class Plain:
    def d(self): ...
    def e(self): ...
"""
PATCHED = {
    **dict.fromkeys(("Patched.a", "OfPatched.a", "Patched.e", "Plain.d", "Plain.e"), "alias os.system"),
    "Patched.b": "alias changed in line 15",
    "Patched.f": "alias obj",
    **dict.fromkeys(("Patched.c", "Patched.d", "Patched.g", "Patched.h", "Patched.more"), "function"),
    "Patched.added": "None",
}


@pytest.mark.parametrize("name", PATCHED)
def test_methods_that_are_set_from_elsewhere(name: str, tmp_path: Path) -> None:
    """By the class's name, or by what may be the class or an object of it."""
    assert said(tmp_path, PATCHES, name) == PATCHED[name]


def said(folder: Path, source: str, name: str) -> str:
    """How a file defines a name: its kind, and what an alias is."""
    (folder / "job.py").write_text(source)
    found = Sources(None, [folder]).find("job", name)
    return "None" if found is None else " ".join((found.kind, found.of)).strip()


# --- modules that were made up, against what CPython imports ------------------------------------------------


class Oracle:
    """The process that imports."""

    def __init__(self, folder: Path) -> None:
        self.own, other = folder / "own", folder / "other"
        for made in (self.own, other):
            made.mkdir()
        (other / "foreign.py").write_text(FOREIGN)
        self.folders = [str(self.own), str(other)]
        script = Path(__file__).with_name("names_oracle.py")
        command = [sys.executable, "-I", "-B", str(script)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def whose(self, module: str, names: list[str]) -> dict[str, str] | None:
        """See names_oracle."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([self.folders, module, names]) + "\n")
        self.process.stdin.flush()
        found: dict[str, str] | None = json.loads(self.process.stdout.readline())
        return found


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    made = Oracle(tmp_path_factory.mktemp("names"))
    with made.process:
        yield made


@settings(max_examples=examples(80), deadline=None)
@given(modules())
def test_what_is_found_is_what_cpython_runs(oracle: Oracle, files: tuple[str, str]) -> None:
    for name, source in zip(("helper", "job"), files, strict=True):
        (oracle.own / f"{name}.py").write_text(source)
    really = oracle.whose("job", ASKED)
    assume(really is not None)
    sources = Sources(None, [oracle.own])
    for name, origin in really.items() if really is not None else ():
        found = sources.find("job", name)
        if found is not None and found.kind != "alias":
            assert origin in FITTING[found.kind](oracle.own), (name, found)


def own_functions(folder: Path) -> set[str]:
    return {f"function {folder / name}.py" for name in ("job", "helper")}


CLASSES_OF_FILES = {"class job", "class helper"}
OBJECTS = {"literal", "object job", "object helper"}
FITTING: dict[str, Callable[[Path], set[str]]] = {
    "function": lambda folder: OBJECTS | own_functions(folder),
    "class": lambda folder: {"literal"} | CLASSES_OF_FILES,
    "value": lambda folder: OBJECTS | own_functions(folder),
}
"""Kind → what the process may say then. Functions that are made up here return literals: what a function
of the user's returns is his."""
