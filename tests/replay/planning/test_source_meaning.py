"""Whose code a name of the user's stands for, one way of binding it after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

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
        "alias an object of Foreign, whose __call__ is inherited from subprocess.Popen",
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
    "partial of a class": ("x = functools.partial(Own)", "alias functools.partial(Own)"),
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
        "alias decorated by an object of Foreign, whose __call__ is inherited from subprocess.Popen",
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


# --- modules that were made up, against what CPython imports ------------------------------------------------

FOREIGN = """
def a(*args): return 1
def b(*args): return a
def deco(function): return a
class C:
    def a(self): ...
    def b(self): ...
    def c(self): ...
class D(C):
    def d(self): ...
class Meta(type):
    def __getattribute__(cls, name): return a
class Context:
    def __enter__(self): return a
    def __exit__(self, *error): return True
def __getattr__(name): return a
"""
FUNCTIONS, CLASSES, METHODS = "ab", "CD", "abcd"

leaf = st.sampled_from(
    [
        *(
            "1",
            "'x'",
            "None",
            "lambda: 1",
            "a",
            "b",
            "C",
            "D",
            "C.a",
            "D.b",
            "foreign.a",
            "foreign.C",
            "eval",
        ),
        *("foreign.C.a", "helper.a", "helper.C", "C().a", "helper.absent", "helper"),
    ]
)
expression = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("[{0[0]}, {0[1]}]".format),
        st.tuples(inner, inner).map("({0[0]} if C else {0[1]})".format),
        st.tuples(inner, inner).map("({0[0]} or {0[1]})".format),
        inner.map("(x := {})".format),
        inner.map("{}()".format),
        inner.map("functools.partial({})".format),
        inner.map("functools.lru_cache({})".format),
        inner.map("functools.lru_cache(None)({})".format),
        inner.map("staticmethod({})".format),
    ),
    max_leaves=3,
)
function_name = st.sampled_from(FUNCTIONS)
class_name = st.sampled_from(CLASSES)
any_name = st.sampled_from(FUNCTIONS + CLASSES)
decorator = st.sampled_from(
    ["functools.lru_cache", "foreign.deco", "a", "b", "helper.a", "staticmethod", "property", "foreign.a()"]
)
base = st.sampled_from(
    ["C", "D", "foreign.C", "foreign.D", "helper.C", "helper.D", "dict", "abc.ABC", "Generic[T]", "Exception"]
)


def indented(block: list[str], by: str = " ") -> str:
    return "\n".join(by + line for statement in block or ["pass"] for line in statement.split("\n"))


@st.composite
def functions(draw: st.DrawFn, names: str = FUNCTIONS) -> str:
    lines = [f"@{one}" for one in draw(st.lists(decorator, max_size=1))]
    name = draw(st.sampled_from(names))
    body = draw(
        st.sampled_from(
            [
                "return 1",
                "self.a = foreign.a; self.b = self.c",
                "global a; a = foreign.a",
                "C.a = foreign.a",
            ]
        )
    )
    return "\n".join([*lines, f"def {name}(self=None, *args):\n {body}"])


@st.composite
def classes(draw: st.DrawFn) -> str:
    lines = [
        f"@{one}" for one in draw(st.lists(decorator, max_size=1 if draw(st.integers(0, 4)) == 0 else 0))
    ]
    bases = draw(st.lists(base, max_size=2, unique=True))
    meta = draw(st.sampled_from([*[[]] * 5, ["metaclass=foreign.Meta"], ["metaclass=abc.ABCMeta"]]))
    member = st.one_of(
        functions(METHODS),
        functions(METHODS),
        st.tuples(st.sampled_from(METHODS), expression).map(" = ".join),
        st.tuples(st.sampled_from(METHODS), expression).map("if C:\n {0[0]} = {0[1]}".format),
        st.sampled_from(METHODS).map("from foreign import a as {}".format),
        st.sampled_from(METHODS).map("if not C:\n def {}(self): ...".format),
        st.just("def __getattribute__(self, name): return foreign.a"),
        st.just("class C:\n def a(self): ...\n b = foreign.b"),
    )
    body = draw(st.lists(member, max_size=3))
    return "\n".join([*lines, f"class {draw(class_name)}({', '.join(bases + meta)}):\n{indented(body)}"])


simple = st.one_of(
    functions(),
    functions(),
    classes(),
    classes(),
    st.tuples(any_name, expression).map(" = ".join),
    st.tuples(any_name, any_name, expression, expression).map("{0[0]}, {0[1]} = {0[2]}, {0[3]}".format),
    any_name.map("{} += foreign.a".format),
    any_name.map("del {}".format),
    any_name.map("for {} in [foreign.a]: ...".format),
    any_name.map("with foreign.Context() as {}: ...".format),
    any_name.map("match foreign.a:\n case {}: ...".format),
    any_name.map("from foreign import a as {}".format),
    any_name.map("from helper import {}".format),
    st.sampled_from(["from foreign import *", "from helper import *", "import helper as a", "a()", "b()"]),
    st.tuples(class_name, st.sampled_from(METHODS), expression).map("{0[0]}.{0[1]} = {0[2]}".format),
    class_name.map("{}.__bases__ = (foreign.C,)".format),
    st.just("def __getattr__(name): return foreign.a"),
)
statement = st.one_of(
    simple,
    simple,
    simple,
    st.lists(simple, max_size=2).map(lambda block: f"if foreign:\n{indented(block)}"),
    st.lists(simple, max_size=2).map(lambda block: f"if not foreign:\n{indented(block)}"),
    st.lists(simple, max_size=2).map(lambda block: f"try:\n{indented(block)}\nexcept Exception: ..."),
)
PRELUDE = "import abc, functools, foreign\nfrom typing import Generic, TypeVar\nT = TypeVar('T')\n"
START = (
    "def a(*x): return 1\ndef b(*x): return 2\nclass C:\n def a(self): ...\nclass D(C):\n def b(self): ...\n"
)
ASKED = [*"abCDx", *(f"{owner}.{name}" for owner in ("C", "D", "C.C") for name in METHODS)]


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


@settings(max_examples=int(os.environ.get("SOURCE_EXAMPLES", "150")), deadline=None)
@given(st.lists(statement, max_size=2), st.lists(statement, min_size=1, max_size=4))
def test_what_is_found_is_what_cpython_runs(oracle: Oracle, helper: list[str], job: list[str]) -> None:
    (oracle.own / "helper.py").write_text("\n".join([PRELUDE + "helper = None\n" + START, *helper]))
    (oracle.own / "job.py").write_text("\n".join([PRELUDE + "import helper\n" + START, *job]))
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
